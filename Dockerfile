# The environment of scripts/setup.sh.
#
#   docker build -t fairseq_relpos .                    # for CPUs
#   docker build -t fairseq_relpos --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cu126 .     # for GPUs
#   docker run --rm fairseq_relpos fairseq-relpos doctor
FROM python:3.12-slim
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN apt-get update \
  && apt-get install --yes --no-install-recommends g++ \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /fairseq_relpos
COPY . .
RUN TORCH_INDEX_URL=$TORCH_INDEX_URL bash scripts/setup.sh && rm -rf /root/.cache
ENV PATH=/fairseq_relpos/.venv/bin:$PATH
CMD ["fairseq-relpos", "doctor"]
