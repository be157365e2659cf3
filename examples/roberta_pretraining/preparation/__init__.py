"""Raw text -> what fairseq-train reads: the steps of prepare.sh, one a file, in this order:

    sources     files -> blocks of whole documents
    cleaning    a block -> cleaned lines of sentences, and a digest of each
    duplicates  digests of all blocks -> the lines that have been seen before
    words       lines -> the words that are too rare (--tupe-compat)
    splits      lines -> sentences for training and for validation
    vocabulary  sentences -> pieces and fairseq's dictionary
    pieces      sentences -> lines of pieces, none too short or too long
    binarising  lines of pieces -> fairseq-preprocess

pipeline.py calls them. A block is a task of its own, the result of a step on a block a file that has
its name when it is whole: a process that is killed loses the blocks at hand, nothing else. What
a file holds depends on the text and the settings, not on the number or the order of processes.
"""
