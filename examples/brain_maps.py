"""Independent components of synthetic brains at four sites: the maps are released, the time courses stay at the sites.

The ledgers of this example are in a temporary folder, and its policies declare the data synthetic. With real data
omit both: ledgers are then in the user's state folder, and every fit counts towards a lifetime cap.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import zerosum
from zerosum.data.bases import cosines
from zerosum.data.fmri import make_fmri
from zerosum.data.imaging import Masker

SIDE, EPSILON = 16, 2.0


def main() -> None:
    made_up = make_fmri(320, sites=4, components=5, points=100, side=SIDE, layout="random", noise=0.3, seed=1)
    sites = {f"site {s}": made_up.observed(s) for s in range(4)}  # each an array of people, volumes, voxels
    grid = Masker.from_array(np.ones((SIDE, SIDE, 1)), np.eye(4), "mask")
    smooth = cosines(grid, 9)  # public: 81 smooth maps, whatever the data are
    ways = {"every voxel": None, f"a public basis of {smooth.shape[1]}": smooth}

    print(f"{sum(made_up.people)} people, {made_up.maps.shape[1]} voxels, epsilon {EPSILON:g} for a person and a fit\n")
    for name, basis in ways.items():
        with TemporaryDirectory() as folder:
            policies = {
                site: zerosum.Policy(population=site, data="synthetic", ledger=Path(folder, f"{site}.sqlite"))
                for site in sites
            }
            ica = zerosum.ICA(n_components=5, epsilon=EPSILON, basis=basis, policies=policies).fit(sites)
        found = ica.match(made_up.maps)
        print(f"{name}: {ica.above_noise_} of 5 dimensions above the noise")
        print("  correlation with the true maps:", found.correlations.round(2))
        print("  stability of the rotation:     ", ica.stability_[found.order].round(2))

    # at site 0, where the volumes are: what the maps of everyone do in one person
    courses = ica.time_courses(sites["site 0"][:1])[0][:, found.order] * found.signs
    truth = made_up.sources[0][0]
    own = [np.corrcoef(courses[:, r], truth[:, r])[0, 1] for r in range(5)]
    print("\none person's time courses, correlation with the true ones:", np.round(own, 2))
    print(*ica.privacy_.sentences(), sep="\n")


if __name__ == "__main__":
    main()
