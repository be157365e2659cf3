"""Raw text -> the data that fairseq-train reads: the steps of prepare.sh, in this order:

    sources     files -> blocks of whole documents
    cleaning    a block -> cleaned lines of sentences, and a digest of each
    duplicates  digests of all blocks -> the lines that have been seen before
    splits      lines -> sentences for training and for validation
    vocabulary  sentences -> the vocabulary and fairseq's dictionary
    pieces      sentences -> lines of pieces, none too short or too long
    binarising  lines of pieces -> fairseq-preprocess

pipeline.py calls them. A step on a block is a task, and its result is a file that gets its name when it is whole: a
process that is killed loses the blocks that it works on, and nothing else. The content of a file depends on the text
and the settings, not on the number or the order of processes.
"""
