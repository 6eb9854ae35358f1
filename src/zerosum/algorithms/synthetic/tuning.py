"""All tuned constants of synthetic data: name, unit and source of each.

Symbols are those of `synthetic.program`: d columns with K_j categories, n units, s_r the standard deviation of the
noise of a cell of round r, as a share of n.

No privacy depends on these constants: the weights of every release are scaled to the planned sensitivity, whatever they
are. They decide how the budget is split, which tables are measured and how the model is fitted.

"Prototype" is a study of about 45 variants on the discretised Adult data (39 124 people, 14 columns, epsilon 1, delta
1e-9, seed 0), which chose its values; NLTCS (16 binary columns) was not looked at. benchmarks/synthetic.py repeats the
comparison with the data.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- program: plan -------------------------------------------------------------------------------------------

    shares: tuple[float, float, float] = (0.35, 0.30, 0.35)
    """Shares of the budget of histograms, pairs and tables. Prototype's value."""
    numeric_bins: tuple[int, int] = (16, 64)
    """Fewest and most bins of a column of numbers that the planner chooses. Chosen by hand: bins below the noise are
    merged after the first round, so that more bins cost little."""
    pair_bins_most: int = 8
    """Most bins of a column in the release of pairs. Prototype's value."""
    pair_cells_most: int = 80_000
    """Most cells of the release of pairs: with many columns each has fewer bins. Chosen by hand, for messages below
    1 MB."""
    table_cells: int = 6000
    """Planned length of the third release. Chosen by hand: with it a site sends at most 100 kB for the 14 columns of
    Adult, and the prototype's selection had at most 5000 cells there."""
    table_cells_of_pair: int = 1024
    """Most cells of the third release for each pair of columns: 32 bins of each. Prototype's value."""
    pair_noise_most: float = 0.01
    """Noise of a cell of a pair, with the whole budget, over the number of units, above which the synthetic data are
    announced to be no better than independent columns. On Adult 5000 people at epsilon 1 and delta 1e-5 (0.013) were
    worse than independent columns and 39 124 people at epsilon 0.5 and delta 1e-9 (0.0044) were better; the value
    between them was chosen by hand."""

    categories_most: int = 50_000
    """Most categories of all columns together: the model has `components` numbers for each, and is part of the result.
    Chosen by hand, for 120 MB of memory."""
    answer_cells_most: int = 1 << 25
    """Most cells of a table that a reader asks for. Chosen by hand, for 268 MB of memory: four columns of 64 bins."""

    # ---- program: bins of the three rounds -----------------------------------------------------------------------

    weight_power: float = 1 / 3
    """Weight of a table: its number of cells to this power. It minimises the total absolute error of all cells:
    minimise sum over tables of cells/weight subject to sum of cells-independent squares 1. Prototype's value."""
    missing_evidence: float = 3.0
    """Standard deviations of its noise by which the released share of missing or undeclared values must exceed 0; below
    that synthetic records have none. The usual limit; chosen by hand."""
    working_noise: float = 2.0
    """Least share of a working bin, in units of s_1. Prototype's value."""
    pair_cell: float = 0.25
    """Least expected share of a cell of a pair, in units of s_2. Prototype's value."""
    table_cell: float = 0.1
    """Least expected share of a cell of a table, in units of s_3. Prototype's value."""
    table_bins_most: int = 32
    """Most bins of a column in a table of the third release. Prototype's value."""
    triples: int = 8
    """Tables of two columns and the target. Prototype's value."""
    triple_bins_most: int = 10
    """Most bins of each of the two columns in such a table. Prototype's value."""
    gain: float = 0.4
    """A pair is measured if its dependence exceeds this multiple of the absolute error that its cells add. Half of the
    mean absolute value of a normal variable, 0.8/2: the total variation distance of noise alone."""

    # ---- model ---------------------------------------------------------------------------------------------------

    components: int = 300
    """Components of the mixture. Prototype's value; 600 gave the same results."""
    iterations: int = 400
    """Steps of Adam. Prototype's value."""
    learning_rate: float = 0.1
    """Largest step of Adam, on logits. Prototype's value."""
    final_rate: float = 0.02
    """Step at the end, over the largest. Prototype's value."""
    moment_decay: tuple[float, float] = (0.9, 0.99)
    """Decay of the first and second moment of Adam. The second differs from the usual 0.999, because there are 400
    steps. Prototype's value."""
    start_spread: float = 0.5
    """Standard deviation of the logits of the components around the histograms at the start. Prototype's value."""
    penalty_start: float = 3000.0
    """Weight of the penalty at the start, from which it falls. Prototype's value."""
    misfit: float = 0.9
    """Squared misfit over noise variance at which the penalty is held (discrepancy principle, Morozov 1966).
    Prototype's value."""
    penalty_every: int = 10
    """Steps between two changes of the penalty. Prototype's value."""
    penalty_change: tuple[float, float] = (0.88, 1.15)
    """Least and largest factor of one change. Prototype's value."""
    std_least: float = 0.5
    """Least standard deviation of the noise of a cell, in units: without noise the weights would be infinite. Half a
    unit, far below any noise that protects somebody."""

    # ---- error ---------------------------------------------------------------------------------------------------

    twins: int = 2
    """Repetitions of the whole study on synthetic records from which the errors in the result are computed. Chosen by
    hand: each costs as much time as the fit."""
    twin_numbers: int = 20_000_000
    """Most numbers in the records of a repetition, rows times columns. Larger studies are repeated on fewer records,
    with less noise. Chosen by hand, for 160 MB of memory."""
    error_factor: float = 1.6
    """Factor on the errors of the repetitions. The prototype's true errors of pairs on Adult were 1.4 to 1.6 times
    those of repetitions in nine of ten pairs: a model's own records depend less than the data."""
    excess_most: float = 10.0
    """Largest factor on the error of a pair by its misfit. Chosen by hand: beyond it the table says nothing."""
    beyond_factor: float = 1.5
    """Further factor for tables of three or four columns: relations of three are not released. Without it 0.82 to 0.98
    of cells were within the 95 % bars (made, crime, KEGG, Adult of benchmarks/synthetic.py, epsilon 1, one run each);
    chosen by hand from that."""
    cell_factor: float = 2.0
    """The same for single cells of tables. Chosen with `cell_offset` by the coverage of 95 % intervals on three tables
    at epsilon 1 (RAND health insurance, Covertype, Adult), and on Adult at 0.5: 0.94 to 0.97 for pairs, 0.92 to 0.97
    for three columns; with 1.6 and an offset of 1 it was 0.90 to 0.93 and 0.83 to 0.90."""
    cell_offset: float = 0.3
    """Share of the mean share of a table's cells that is added to the share of a cell before its variance is taken in
    proportion to it: empty cells have errors, too. Chosen with `cell_factor`."""


TUNING = Tuning()
