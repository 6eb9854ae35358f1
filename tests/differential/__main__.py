"""`python -m differential --cases N --first SEED`, from the folder `tests`: plays many cases and counts.

Prints what was played, every kind of difference with the seed of an example, and exits with 1 if there was one. A seed
is the same case in every process.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from differential.cases import SUBJECTS, case
from differential.play import Outcome, compare, scratch
from differential.transcript import FOLLOWS

_WRITTEN = ("ledger", "audit log", "counters")


@dataclass
class Tally:
    """Counts over many cases."""

    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    found: dict[str, list[int]] = field(default_factory=dict)  # kinds of differences, and the seeds of their cases

    def add(self, outcome: Outcome) -> None:
        played, lines = outcome.case, outcome.transcript.lines
        replies = [line for line in lines if line.about not in _WRITTEN]
        self.counts.update(cases=1, plans=len(played.plans), requests=len(played.requests))
        self.counts.update({"replies compared": len(replies), "lines written down": len(lines) - len(replies)})
        self.counts["consents"] += sum(line.said.startswith("Consent") for line in replies)
        self.counts["contributions"] += sum(line.said.startswith("Contribution") for line in replies)
        self.counts["cases that differ"] += not outcome.sound
        self.refusals.update(
            found[1] for line in replies if (found := re.match(r"Refusal of '\w+', (\w+):", line.said))
        )
        self.pairs[f"{played.pair.kind}, {played.pair.change}: {played.pair.trait}"] += 1
        for kind in dict.fromkeys(kinds_of(outcome)):
            self.found.setdefault(kind, []).append(played.seed)

    def failed(self, seed: int) -> None:
        self.counts["cases that differ"] += 1
        self.found.setdefault(f"exception in the player: {traceback.format_exc(limit=-3)}", []).append(seed)

    def __str__(self) -> str:
        said = [", ".join(f"{name} {count}" for name, count in self.counts.items())]
        said += ["refusals: " + ", ".join(f"{code} {count}" for code, count in self.refusals.most_common())]
        said += ["pairs: " + ", ".join(f"{pair} {count}" for pair, count in sorted(self.pairs.items()))]
        for kind, seeds in sorted(self.found.items(), key=lambda each: -len(each[1])):
            said.append(f"{len(seeds):6} cases: {kind} (seeds {', '.join(map(str, seeds[:4]))})")
        return "\n".join(said)


def kinds_of(outcome: Outcome) -> list[str]:
    """What was found, by the kind of difference, the kind of data, and why the site refused, where it did.

    What a site wrote down differs wherever a reply does: it counts where no reply differs.
    """
    replies = [each for each in outcome.differences if each.kind not in (*_WRITTEN, FOLLOWS)]
    kinds = [
        f"{each.kind}; {outcome.case.pair.kind}" + (f": {each.reason}" if each.reason else "")
        for each in (replies or outcome.differences)
    ]
    return kinds + [re.sub(r"[0-9][0-9.e+-]*", "#", fault) for fault in outcome.faults]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=len(SUBJECTS), help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--show", type=int, default=3, help="how many differing cases are shown whole")
    asked = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # a site's own log
    tally, shown, begun, told = Tally(), 0, time.monotonic(), time.monotonic()
    with scratch() as folder:
        for seed in range(asked.first, asked.first + asked.cases):
            try:
                outcome = compare(case(seed), folder / "case")
            except Exception:
                tally.failed(seed)
                continue
            tally.add(outcome)
            if not outcome.sound and shown < asked.show:
                shown += 1
                print(outcome, end="\n\n", flush=True)
            if time.monotonic() - told > 20:
                told = time.monotonic()
                done, differ = seed - asked.first + 1, tally.counts["cases that differ"]
                print(f"{done} of {asked.cases} cases in {told - begun:.0f} s, {differ} differ", file=sys.stderr)
    print(tally)
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
