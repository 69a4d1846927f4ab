"""What seeded runs and commands gave, stored as text, so that a change of the code shows what it changes.

Each case is one file in `stored`. Its `figures` are exit codes, JSON documents, artifacts, transcripts and privacy
records; its `words` are the sentences that stood among them, kept apart so that a change of wording shows as one.
Long arrays and transcripts are stored as a hash, their sum and their first numbers. Pictures and pages are not stored,
only that they were written.

`make snapshots` writes all files anew, `make snapshots WORDS=1` only the words. Read `git diff` afterwards: a change of
figures has to be meant.

Figures are compared exactly. NumPy and its BLAS choose their kernels by the processor, and these differ in the last
digit, so a machine that computes otherwise than the one that wrote the files (see `arithmetic`) compares numbers within
1e-6 and leaves hashes out; it says so by a skipped test. FEDCALIB_SNAPSHOTS=exact or =near decides it by hand.
"""
