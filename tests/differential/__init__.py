"""Differential fuzzer: one site, two neighbouring data sets, one coordinator, and equal transcripts but for noise.

    questions.py    an ordinary question of every algorithm, a request for every statistic: add new ones there
    mutate.py       mutations of plans and of requests
    neighbours.py   pairs of data sets as files: tables, documents, images
    cases.py        from one integer a plan, its siblings, a pair and a script of messages
    play.py         the real service over files (`open_site`), told a case's frames
    transcript.py   what is compared, and what a ledger must hold by the plan alone

The fast part is in `make test`, the long one in `make slow`. By hand, from the folder `tests`:

    PYTHONPATH=../src ../.venv/bin/python -m differential --cases 2000 --first 0
"""
