"""Catalogue of faults: noise, sensitivities, accounting. `docs/audit.md` lists what detects each.

Each fault has a name, a description, and edits of source text.
"""

from __future__ import annotations

from mutations.commitment_faults import COMMITMENTS
from mutations.disclosures import DISCLOSURES
from mutations.fault import Edit, Fault
from mutations.parties import SECAGG, SITE

# Faults of the noise: keys, independence, size, distribution.
_NOISE = [
    # Repeated or correlated noise. `audit.echoes` detects it.
    Fault(
        "repeated-draws",
        "each draw of the sampler serves two neighbouring numbers",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "np.repeat(discrete_gaussian.draw((size + 1) // 2, std, self.words), 2)[:size]",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "self.words(len(part))",
                "np.repeat(self.words((len(part) + 1) // 2), 2)[: len(part)]",
            ),
        ),
    ),
    Fault(
        "repeated-halves",
        "the second half of a release has the noise of the first",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "np.tile(discrete_gaussian.draw((size + 1) // 2, std, self.words), 2)[:size]",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "self.words(len(part))",
                "np.tile(self.words((len(part) + 1) // 2), 2)[: len(part)]",
            ),
        ),
    ),
    Fault(
        "one-key",
        "one key for the noise of all sites, rounds and studies",
        (
            Edit("noise.sampler:Sampler.system", "os.urandom(32)", "bytes(32)"),
            Edit("noise.sampler:new_secret", "os.urandom(32)", "bytes(32)"),
        ),
    ),
    Fault(
        "one-key-a-site",
        "a site's noise has the same key in every round and study",
        (Edit("site.site:Site._sampler", "Sampler.of_secret(secret, purpose)", "Sampler.seeded(self.name.encode())"),),
    ),
    Fault(
        "one-key-a-round",
        "all sites draw from one key in a round",
        (Edit("site.site:Site._sampler", "Sampler.of_secret(secret, purpose)", "Sampler.seeded(str(round).encode())"),),
    ),
    Fault(
        "correlated-rounds",
        "noise has correlation 0.3 from round to round, study to study and site to site",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "np.rint(sum(share**0.5 * discrete_gaussian.draw(size, std, source.words) for share, source in"
                " ((0.3, Sampler.seeded(b'')), (0.7, self)))).astype(np.int64)",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "return np.multiply(out, std, out=out)",
                "return std * (0.7**0.5 * out + 0.3**0.5 * ndtri(((Sampler.seeded(b'').words(size)"
                " >> np.uint64(12)) + 0.5) * 2.0**-52))",
            ),
        ),
    ),
    # Noise of the wrong size or distribution. `audit.shape` detects it.
    Fault(
        "less-noise",
        "noise 3 % too small",
        (Edit("site.noise:NoiseShare.__init__", "= law, site, size", "= law.scaled(0.97), site, size"),),
    ),
    Fault(
        "silent-places",
        "every 100th number of a release has no noise",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "discrete_gaussian.draw(size, std, self.words) * (np.arange(size) % 100 != 0)",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "return np.multiply(out, std, out=out)",
                "return np.multiply(out, std, out=out) * (np.arange(size) % 100 != 0)",
            ),
        ),
    ),
    Fault(
        "half-noise-first",
        "the first half of a release has half the noise",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "discrete_gaussian.draw(size, std, self.words) // np.where(np.arange(size) < size // 2, 2, 1)",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "return np.multiply(out, std, out=out)",
                "return np.multiply(out, std, out=out) / np.where(np.arange(size) < size // 2, 2, 1)",
            ),
        ),
    ),
    Fault(
        "even-steps",
        "noise on the grid has an even number of steps always",
        (
            Edit(
                "site.noise:NoiseShare._steps",
                "self._sampler.steps(self._size, own)",
                "2 * self._sampler.steps(self._size, own / 2)",
            ),
        ),
    ),
    Fault(
        "laplace-of-one-sign",
        "shares of Laplace noise are never negative",
        (
            Edit(
                "noise.discrete_laplace:_propose",
                "np.negative(signed, out=signed, where=negative)",
                "pass",
            ),
        ),
    ),
    Fault(
        "laplace-shares-of-all-sites",
        "only the shares of all sites together add up to Laplace noise, those of the honest sites do not",
        (Edit("kernel.laplace:place", "parts = honest if", "parts = law.sites if"),),
    ),
    # Weak or repeated keys that an audit does not detect. Unit tests do.
    Fault(
        "short-key",
        "a key for noise has 32 bits",
        (
            Edit("noise.sampler:Sampler.system", "os.urandom(32)", "os.urandom(4) + bytes(28)"),
            Edit("noise.sampler:new_secret", "os.urandom(32)", "os.urandom(4) + bytes(28)"),
        ),
    ),
    Fault(
        "seed-without-round",
        "a seed gives every round of a study the same noise",
        (Edit("site.site:Site._sampler", 'f"{self.name} {round} {purpose}"', 'f"{self.name} {purpose}"'),),
    ),
    Fault(
        "forked-noise",
        "a forked process draws its parent's noise again",
        (Edit("noise.sampler:Sampler.words", "if self._rekey and", "if False and"),),
    ),
]

# Sensitivities that are 3 % too small, one for each statistic without a fault of its own: (name, class, returned
# expression).
_SENSITIVITIES = [
    Fault(
        f"{name.replace('_', '-')}-sensitivity",
        f"the sensitivity of {name} 3 % too small",
        (Edit(f"statistics.{target}.sensitivity", f"return {value}", f"return 0.97 * {value}"),),
    )
    for name, target, value in (
        ("vector_sum", "vectors:VectorSum", "2 * self.clip"),
        ("observed_sums", "observed:ObservedSums", "2 * self.radius"),
        ("histogram", "histogram:Histogram", "math.sqrt(2)"),
        ("second_moment", "moments:SecondMoment", "math.sqrt(2)"),
        ("cluster_sums", "clusters:ClusterSums", "2.0"),
        ("scatter", "scatter:UnitMoment", "math.sqrt(2)"),
        (
            "rounded_scatter",
            "rounded_scatter:RoundedScatter",
            "super().sensitivity(adjacency) * (LARGEST_NORM / TARGET) ** 2",
        ),
        ("multinomial_step", "multinomial:MultinomialStep", "2 * math.sqrt(2)"),
        ("cox_step", "cox_step:CoxStep", "2.0"),
        ("score_table", "concordance:ScoreTable", "math.sqrt(2)"),
        ("unmixing_score", "sources:SourceStatistic", "2.0"),
        ("band_scatter", "bands:BandScatter", "math.sqrt(2)"),
        ("user", "user:UserStatistic", "2 * self.clip"),
        ("augmented_scatter", "mixture:AugmentedScatter", "bound * (1 + self.constant**2)"),
        ("third_moment", "mixture:ThirdMoment", "2.0"),
        ("mixture_sums", "mixture:MixtureSums", "2.0"),
        ("documents", "topics:DocumentStatistic", "math.sqrt(2)"),
        ("tensor_clipped_gradient", "published:TensorClippedGradient", "4 * self.clip"),
        ("local_training", "local_training:LocalTraining", "2 * self.clip"),
    )
]
_SENSITIVITIES += [
    Fault(
        f"{name.replace('_', '-')}-sensitivity-l-one",
        f"the L1 sensitivity of {name} 3 % too small",
        (Edit(f"statistics.{target}.sensitivity_l1", f"return {value}", f"return 0.97 * {value}"),),
    )
    for name, target, value in (
        ("vector_sum", "vectors:VectorSum", "2 * whole"),
        ("observed_sums", "observed:ObservedSums", "self.radius"),
        ("histogram", "histogram:Histogram", "2.0"),
    )
]
_SENSITIVITIES += [
    Fault(
        "inherited-l-one",
        "a statistic with another sum has the L1 bound of its parent",
        (Edit("kernel.statistic:Statistic.distance", "if self._defined_at(each) < own]", "if False]"),),
    )
]
_SENSITIVITIES.append(
    Fault(
        "product-of-one-column",
        "products with several columns are bounded as those with one are",
        (Edit("statistics.scatter:ScatterProduct.sensitivity", "if self.basis.shape[1] == 1:", "if True:"),),
    )
)

_SENSITIVITIES.append(
    Fault(
        "weightless-constants",
        "the weight of a row of a Cox regression forgets its constants",
        (
            Edit(
                "statistics.cox_step:CoxStep.sum_block",
                "n = fold(z * z) + self.part_weight**2 + self.stratum_weight**2",
                "n = fold(z * z) + 1e-9",
            ),
        ),
    )
)
_SENSITIVITIES.append(
    Fault(
        "rows-apart",
        "each row of a person in a Cox regression is bounded by itself",
        (
            Edit(
                "statistics.cox_step:CoxStep._path",
                "here = order[first:last]",
                "here, g2, T = order[first:last], 0 * g2, 0 * T",
            ),
        ),
    )
)

# Faults of calibration, accounting, clipping, and dependence of one unit's contribution on others.
_KERNEL = [
    # Calibration: what the coalition knows, and what the budget pays for.
    Fault(
        "uncounted-colluders",
        "the calibration forgets the colluders",
        (
            Edit(
                "kernel.view:worst_mu",
                "law.sites - coalition.honest(law.sites)",
                "coalition.dropouts",
            ),
        ),
    ),
    Fault(
        "laplace-in-l-two",
        "Laplace noise is calibrated to the L2 sensitivity",
        (Edit("kernel.statistic:Statistic.distance", 'if noise == "gaussian":', "if True:"),),
    ),
    Fault(
        "laplace-rounding",
        "the rounding to the grid is left out of how far a unit moves a sum with Laplace noise",
        (Edit("kernel.laplace:place", "rounding = step * size + ", "rounding = "),),
    ),
    Fault(
        "laplace-uncharged",
        "a ledger leaves Laplace noise out of its total",
        (Edit("site.ledger_records:_epsilon", "(*total.sampled, *total.laplace)", "total.sampled"),),
    ),
    Fault(
        "uncounted-dropouts",
        "the calibration forgets the sites that may be lost",
        (
            Edit(
                "kernel.view:worst_mu",
                "law.sites - coalition.honest(law.sites)",
                "coalition.colluders",
            ),
        ),
    ),
    Fault(
        "extra-delta",
        "what finite arithmetic adds to delta is not paid for",
        (Edit("kernel.terms:Terms.whole_mu", "self.delta - extra_delta", "self.delta"),),
    ),
    Fault(
        "whole-budget",
        "every release of a study gets the whole budget",
        (Edit("kernel.plan:Plan._targets", "whole * math.sqrt(share * room) * PRIVATE_SIDE", "whole * PRIVATE_SIDE"),),
    ),
    # Sensitivity of the rounded sum on the grid.
    Fault(
        "summation-slack",
        "the rounding of sums is left out of how far a unit moves a message",
        (Edit("kernel.grid:place", " + summation_slack() * bound", ""),),
    ),
    Fault(
        "rows-of-many-units",
        "blocks of many units have as many rows as those of few",
        (Edit("kernel.grid:rows_allowed", "BLOCK_ROWS if units <= PLANNED_UNITS else 1", "BLOCK_ROWS"),),
    ),
    Fault(
        "groups-of-many-units",
        "sums over many units are not taken in groups of few rows",
        (Edit("compute.backends.exact:_most", "allowed < BLOCK_ROWS", "allowed < 0"),),
    ),
    Fault(
        "rounding-slack",
        "the rounding to the grid is left out of how far a unit moves a message",
        (Edit("kernel.grid:place", "rounding=step * math.sqrt(size) +", "rounding="),),
    ),
    Fault(
        "scale-in-divisor",
        "a site's scale is left out of what a sum is divided by",
        (Edit("kernel.plan:Plan.effective_units", "* law.factor[index[n]] *", "*"),),
    ),
    # Composition of several releases.
    Fault(
        "composition",
        "of several releases only the dearest counts",
        (Edit("kernel.accountant:compose", "math.sqrt(math.fsum(mu * mu for mu in mus))", "max(mus, default=0.0)"),),
    ),
    # Clipping.
    Fault(
        "unclipped-row",
        "the first row of a block is not clipped",
        (
            Edit(
                "compute.backends.exact:clip_factors",
                "norm <= radius / size",
                "(norm <= radius / size) | (xp.arange(rows.shape[0]) == 0)",
            ),
        ),
    ),
    # Contributions that depend on other units of the block, which breaks the sensitivity proof.
    Fault(
        "crowd-clip",
        "how a row is clipped depends on whether all rows of its block have sound squares",
        (
            Edit(
                "compute.backends.exact:sized",
                "plain = (size > 1e-200) & (size < 1e200)",
                "plain = xp.full_like(size, bool(xp.all((size > 1e-200) & (size < 1e200))), dtype=xp.bool)",
            ),
        ),
    ),
    Fault(
        "crowd-ranks",
        "ranks depend on the other units of a block",
        (
            Edit(
                "statistics.rank_moments:RankMoment.normalise",
                "share = place - xp.astype(at, xp.float64)",
                "share = place - xp.mean(xp.astype(at, xp.float64))",
            ),
        ),
    ),
    Fault(
        "crowd-clusters",
        "the nearest centre is read off a product whose rounding depends on who else is there",
        (
            Edit(
                "statistics.clusters:ClusterSums._nearest",
                "rounded(rows * (2.0**BITS / self.clip))",
                "rows * (2.0**BITS / self.clip)",
            ),
        ),
    ),
    Fault(
        "crowd-projection",
        "a norm to divide by follows a product whose rounding depends on who else is there",
        (Edit("compute.backends.exact:Exact.projections", "whole(rows, norm)", "rows * (2.0**BITS / norm)[:, None]"),),
    ),
    Fault(
        "crowd-rounding",
        "records are rounded towards zero where one of their block is too long",
        (
            Edit("statistics.rounded_scatter:RoundedScatter.exact_block", "placing is not None", "False"),
            Edit(
                "statistics.rounded_scatter:round_rows",
                "np.sum(whole * whole, axis=1) > LARGEST_NORM**2",
                "np.max(np.sum(whole * whole, axis=1)) + np.zeros(len(weighed)) > LARGEST_NORM**2",
            ),
        ),
    ),
    # Rounding must not lengthen a record.
    Fault(
        "rounded-length",
        "a record that rounding makes too long stays so",
        (
            Edit("statistics.rounded_scatter:RoundedScatter.exact_block", "placing is not None", "False"),
            Edit("statistics.rounded_scatter:round_rows", "np.trunc(weighed[long])", "whole[long]"),
        ),
    ),
    # Failures, and units with several rows.
    Fault(
        "refusal-by-data",
        "a contribution that fails for one unit ends the study after consent",
        (
            Edit(
                "compute.statistic:BoundedStatistic._part",
                "except Exception as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
    ),
    Fault(
        "rows-for-people",
        "a person with many rows counts by rows",
        (Edit("compute.units:Units.row_weights", "np.repeat(1 / sizes, sizes)", "np.repeat(1.0 + 0 * sizes, sizes)"),),
    ),
    # Statistics with their own bounds.
    Fault(
        "observed-clip",
        "who is observed in few columns says as much as who is observed in all",
        (
            Edit(
                "statistics.observed:ObservedSums.sum_block",
                "clip_rows(vectors / share, self.radius) * share",
                "vectors",
            ),
        ),
    ),
    Fault(
        "heavy-weight",
        "a weight beyond its range counts as it is",
        (Edit("statistics.regression:RegressionRows._roles", "xp.clip(rows[:, at], -1.0, 1.0)", "rows[:, at]"),),
    ),
    Fault(
        "long-row-weight",
        "the gradient of a long row is that of the whole row",
        (
            Edit(
                "statistics.regression:NewtonStep.sum_block",
                "r * weights * rows.shrunk if self.weighed",
                "r * weights / rows.shrunk if self.weighed",
            ),
        ),
    ),
    Fault(
        "weight-of-nothing",
        "a unit that weighs nothing is not among those whose distance is bounded",
        (
            Edit(
                "statistics.polynomial:PolynomialCoefficients.sensitivity",
                "max(self._distance2, self._norm2) if zero_too else self._distance2",
                "self._distance2",
            ),
        ),
    ),
    Fault(
        "tensor-by-rows",
        "the tensor of a person with several rows is not clipped",
        (Edit("statistics.mixture:ThirdMoment.sum_block", "clip_rows(means, 1.0)", "means"),),
    ),
    Fault(
        "spread-beyond-radius",
        "a row outside the radius of a component counts in its spread",
        (
            Edit(
                "statistics.mixture:MixtureSums.sum_block",
                "xp.where(outside, 0.0 * square, 1.0 - square)",
                "(1.0 - square)",
            ),
        ),
    ),
    Fault(
        "triple-norm",
        "the norm of a document's triples leaves out those of one word",
        (Edit("statistics.topics:chosen_thrice", " + fold(thrice)", ""),),
    ),
    Fault(
        "whole-topics",
        "a document counts in every topic as if it were the likeliest",
        (
            Edit(
                "statistics.topics:TopicSums.responsibilities",
                "(fold(likely + 0.0) * INSIDE)[:, None]",
                "(np.max(likely, axis=1) * INSIDE)[:, None]",
            ),
        ),
    ),
    Fault(
        "documents-for-people",
        "a part of a person's documents weighs as much as all of them",
        (
            Edit(
                "statistics.topics:DocumentStatistic.sum_block",
                "shares[part])",
                "shares[part] / np.sum(shares[part]))",
            ),
        ),
    ),
    Fault(
        "copies-as-people",
        "every copy of a person with imputed values counts as a person",
        (Edit("data.imputation:Imputation.completed", "None if single else ends", "None"),),
    ),
    Fault(
        "pairs-too-short",
        "the largest distance of centred pairs forgets what two changed columns have in common",
        (Edit("statistics.marginals:CentredPairs.scale", "2 * gains - m * (m - 1)", "2 * gains - 2 * m * (m - 1)"),),
    ),
    Fault(
        "model-twice",
        "the sums of a model's values count each value twice",
        (Edit("statistics.additive:ModelTables.sum_block", "weights * s)", "2 * weights * s)"),),
    ),
    Fault(
        "heavy-tables",
        "the weights of tables may have any norm",
        (Edit("statistics.marginals:WeightedTables._tables_fit", "> 1:", "> 100:"),),
    ),
    Fault(
        "maps-too-far",
        "a person's maps are clipped at twice the norm that the noise is for",
        (Edit("statistics.dual_regression:DualRegression._parts", "-1)), self.clip)", "-1)), 2 * self.clip)"),),
    ),
    Fault(
        "edges-unclipped",
        "connectivity is not clipped as one vector",
        (Edit("statistics.connectivity:EdgeStatistic.contributions", "clip_rows(z, self.clip)", "z"),),
    ),
    Fault(
        "free-energy",
        "the energy of connectivity has twice the weight that costs nothing",
        (
            Edit(
                "statistics.connectivity:GroupedConnectivity._parts",
                "(ENERGY_WEIGHT * self.clip)",
                "(2 * ENERGY_WEIGHT * self.clip)",
            ),
        ),
    ),
    Fault(
        "half-the-triangle",
        "products within sites are taken to move half as far",
        (Edit("statistics.connectivity:SiteCentredConnectivity.sensitivity", "return 4 *", "return 2 *"),),
    ),
    Fault(
        "histogram-twice",
        "a histogram counts each value twice",
        (Edit("statistics.histogram:Histogram.sum_block", "counts(codes, weights,", "counts(codes, 2 * weights,"),),
    ),
]

# All faults by name.
FAULTS = {
    fault.name: fault for fault in (*_NOISE, *_SENSITIVITIES, *_KERNEL, *SITE, *SECAGG, *COMMITMENTS, *DISCLOSURES)
}
