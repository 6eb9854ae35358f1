"""Constants of guided ICA. Measurements: `benchmarks/guided.py` on ABIDE (858 people, 200 regions, 20 sites)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Constants of guided ICA."""

    # Candidates for the number of directions that are released; all public directions are another. Chosen on ABIDE.
    candidates: tuple[int, ...] = (5, 10, 20, 30, 45, 60, 90, 130)
    # Directions of public people that enter a study at most: later ones were never chosen on ABIDE.
    most_directions: int = 190
    # Ends of the blocks of directions that are shrunk together: small where the energy is. Chosen on ABIDE.
    blocks: tuple[int, ...] = (5, 10, 20, 40, 80)
    # Expected difference of the people of a study from the public ones, as a fraction of what people differ by: found
    # on sites 1 to 10 against 11 to 20 of ABIDE, where it is 0.122.
    shift: float = 0.1
    # Without public people: the clip in units of sqrt(R). People differ from a good template by 0.65 sqrt(R), from
    # masks by 1.3 sqrt(R); 0.65 loses 0.03 to 0.05 for masks on ABIDE.
    plain_clip: float = 1.0
    # Without public people: standard deviations of the noise energy that an excess must exceed. Chosen on ABIDE: with
    # none, single runs at epsilon 0.5 were 0.015 below their template.
    clear_excess: float = 2.5
    # Without public people, what the forecast assumes: the norm of the difference of a map from its template, and that
    # of a person; for a good template (sites 1 to 10 against 11 to 20 of ABIDE) and for a crude one (masks of regions).
    good_template: tuple[float, float] = (0.085, 0.65)
    crude_template: tuple[float, float] = (0.82, 1.3)
    # Columns beyond which public directions come from one pass of random projections and not from a square matrix.
    square_columns: int = 2000
    # Largest factor of the public people's difference: a noisy factor must not enlarge it much. Chosen by hand.
    most_factor: float = 1.2


TUNING = Tuning()
