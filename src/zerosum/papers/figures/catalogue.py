"""The figures by name: which figure or table of which paper each one is, and what the paper claims there.

`zerosum reproduce --help` and the page of `zerosum reproduce all` are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A figure of the papers.

    Attributes
    ----------
    paper : str
        Name of the paper's method, and the numbers of its figures or tables.
    shows : str
        The quantity on the vertical axis.
    claim : str
        The claim of the paper at this figure.
    found : str
        What the reproduction shows.
    """

    paper: str
    shows: str
    claim: str
    found: str


_PCA = (
    "capePCA captures as much energy as private PCA of pooled data, more than conv, DPdisPCA and one site alone.",
    "The order holds, and pooled data are better than capePCA at an equal exact epsilon. At the papers' calibration "
    "the exact epsilon of capePCA is larger than the one asked for (1.55 for 1 at delta 1e-5).",
)
_ICA = (
    "capeDJICA reaches a normalised gain index below 0.1, near non-private djICA, at a small epsilon of a round.",
    "Not reached. With the papers' step, 1000 rounds hardly move from the start W = I, with or without noise. With a "
    "step of 1 djICA without noise is below 0.1; capeDJICA was at 0.112 with an exact total epsilon of 276, 10 sources "
    "and that step.",
)
_ABIDE = (
    "On real fMRI capeDJICA is near the pseudo ground truth, which is djICA of the pooled data.",
    "W = I, the starting point, has an index of 0.077. With the papers' step and 772 people capeDJICA at epsilon 0.5 a "
    "round (89 in all) has 0.079, and djICA without noise 0.073: it can be had without learning anything. With fewer "
    "people or more noise capeDJICA moves away from the pseudo truth, to 0.34.",
)
_FM = (
    "capeFM has a smaller loss than dp-fm, objective perturbation, conv and one site alone.",
    "The exact epsilon of the papers' calibration is 1.66 where 1 is asked for at delta 1e-5, and 5.8 where 3 is asked "
    "for at delta 1e-3. A noisy capeFM polynomial is often without a minimum.",
)
_OTD = (
    "capeAGN has a smaller error than conv and than AGN and AVN at one site.",
    "The order holds. Zerosum's own algorithm has a smaller error at the same exact epsilon.",
)
_NN = (
    "A network trained with CAPE is as accurate as one without privacy from a moderate epsilon of an iteration on.",
    "The paper's epsilon is that of one gradient in one iteration: 0.5 in each of 25 iterations is 11.2 in all.",
)
_DC = (
    "DC-DP loses 3 to 6 points of accuracy against DC, and is more accurate than FL-DP.",
    "DC is 5 to 8 points better here, and DC-DP loses nothing: its epsilon of 50 is for one pixel, and is in the "
    "thousands for a whole record.",
)

CATALOGUE: dict[str, Entry] = {
    "pca-epsilon": Entry("capePCA fig. 2 (a, d, g)", "captured energy against epsilon", *_PCA),
    "pca-samples": Entry("capePCA fig. 2 (b, e, h)", "captured energy against records", *_PCA),
    "pca-delta": Entry("capePCA fig. 2 (c, f, i)", "captured energy against delta", *_PCA),
    "ica-epsilon": Entry("capeDJICA fig. 1a, DP-djICA fig. 2a", "normalised gain index against epsilon", *_ICA),
    "ica-epsilon-256": Entry("capeDJICA fig. 1b", "the same with 256 people", *_ICA),
    "ica-subjects-2": Entry("capeDJICA fig. 2b", "gain index against people, epsilon 2 a round", *_ICA),
    "ica-pooled": Entry(
        "DP-djICA fig. 2b",
        "normalised gain index against epsilon, 512 people at one party",
        "Privacy has a price, and pooled data of 512 people are slightly worse than 1024 people at four sites.",
        "At epsilon 0.1 and 1 a round the index is 0.34, that of a mixture that nothing has separated (0.33); djICA "
        "without noise has 0.21 with the papers' step. No epsilon holds for DP-djICA. Zerosum with a trusted "
        "coordinator has 0.011 at an exact total epsilon of 4 for a person, 0.20 at 1.",
    ),
    "ica-autocorrelation": Entry(
        "DP-djICA fig. 1",
        "autocorrelation of estimated time courses",
        "At epsilon 1 the components are almost as independent as those of djICA, by their autocorrelations.",
        "The autocorrelations are alike, but they are also alike for mixtures that nothing has separated: they do not "
        "show independence. The gain index does (0.34 for DP-djICA, 0.33 for the mixtures, 0.003 for djICA with our "
        "step), and so does the dependence of squares (0.063, 0.033 and 0.004; 0.004 for the true time courses).",
    ),
    "ica-grid": Entry(
        "capeDJICA fig. 4",
        "maps of capeDJICA by people and epsilon of a round",
        "With enough people the maps of capeDJICA closely resemble the true ones, even for a small overall epsilon.",
        "They do not at the printed parameters: each row has its exact epsilon, gain index and correlation.",
    ),
    "ica-subjects": Entry("capeDJICA fig. 2a", "normalised gain index against people", *_ICA),
    "ica-delta": Entry("capeDJICA fig. 7a", "normalised gain index against delta", *_ICA),
    "ica-maps": Entry(
        "capeDJICA fig. 3",
        "spatial maps",
        "The maps of capeDJICA resemble those of non-private djICA.",
        "They are noise (correlation 0.27 with the truth) at the printed parameters.",
    ),
    "fm-epsilon": Entry("capeFM fig. 3 and 4 (a, b)", "loss of linear regression against epsilon", *_FM),
    "fm-samples": Entry("capeFM fig. 3 and 4 (c, d)", "loss of linear regression against records", *_FM),
    "fm-delta": Entry("capeFM fig. 3 and 4 (e, f)", "loss of linear regression against delta", *_FM),
    "fm-error": Entry("capeFM fig. 7", "error of the coefficients", *_FM),
    "nn-epsilon": Entry("capeFM fig. 2 (a, b)", "accuracy of a network against epsilon", *_NN),
    "nn-samples": Entry("capeFM fig. 2 (c, d)", "accuracy of a network against records", *_NN),
    "otd-mog-epsilon": Entry("capeAGN fig. 3", "error of a mixture's means against epsilon", *_OTD),
    "otd-mog-samples": Entry("capeAGN fig. 3", "error of a mixture's means against records", *_OTD),
    "otd-mog-delta": Entry("capeAGN fig. 5 (top)", "error of a mixture's means against delta", *_OTD),
    "otd-stm-epsilon": Entry("capeAGN fig. 4", "error of topics against epsilon", *_OTD),
    "otd-stm-samples": Entry("capeAGN fig. 4", "error of topics against records", *_OTD),
    "otd-stm-delta": Entry("capeAGN fig. 5 (bottom)", "error of topics against delta", *_OTD),
    "dc-mnist": Entry("DC-DP tables 1 to 3, fig. 5 and 6", "accuracy on test images", *_DC),
    "dc-fashion": Entry("DC-DP tables 4 to 6, fig. 7 and 8", "accuracy on test images", *_DC),
    "cape-delta": Entry(
        "capeFM fig. 5, capeDJICA fig. 5a-b",
        "delta against the noise of a message",
        "The delta of CAPE is near that of pooled data (delta_pool), and far below delta_conv.",
        "Against the whole view of a coordinator and its colluders the exact delta of CAPE is above delta_pool; the "
        "claim omits that colluders know their own draws.",
    ),
    "cape-collusion": Entry(
        "capeFM fig. 6, capeDJICA fig. 5c-d",
        "delta against the share of colluding sites",
        "The delta of CAPE grows slowly with the number of colluders, up to a third of the sites.",
        "At epsilon 3 the exact delta is up to 12 times the claim, which omits that colluders know their own draws; at "
        "epsilon 1 the loose conversion of the claim makes up for it with 10 sites, but not with 30.",
    ),
    "ica-abide": Entry("capeDJICA fig. 1c", "normalised gain index against epsilon on ABIDE", *_ABIDE),
    "ica-abide-256": Entry("capeDJICA fig. 1d", "the same with 256 people", *_ABIDE),
    "ica-abide-subjects": Entry("capeDJICA fig. 2c", "gain index against people on ABIDE", *_ABIDE),
    "ica-abide-subjects-2": Entry("capeDJICA fig. 2d", "gain index against people, epsilon 2 a round", *_ABIDE),
    "ica-abide-delta": Entry("capeDJICA fig. 7b", "gain index against delta on ABIDE", *_ABIDE),
    "accountants": Entry(
        "capeDJICA fig. 6",
        "total epsilon against rounds",
        "Renyi accounting and the moments accountant give a smaller total than strong composition.",
        "True, and the exact total for the same view is smaller still. The view of a coordinator with a colluder costs "
        "more than that: mu^2 is larger by a factor of 1.87.",
    ),
    "communication": Entry(
        "capeDJICA table I, capeFM table 1",
        "bytes to and from a site and the aggregator",
        "CAPE costs a site O(S + D) and the aggregator O(S^2 + SD), as secure aggregation alone.",
        "The orders hold. Set-up is 957 + 208 S bytes for a site, once a study. A round is 936 + 24 D bytes with CAPE "
        "and 793 + 8 D with secure aggregation of the sums themselves: CAPE sends three vectors where one is enough.",
    ),
}
