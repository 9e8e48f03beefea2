"""What the paper reports (Xu et al., ICLR 2022): precision, recall and F1 in percent, all after point adjustment."""

from typing import NamedTuple

DATASETS = ("smd", "msl", "smap", "swat", "psm")


class Quoted(NamedTuple):
    """One cell of a table of the paper."""

    precision: float
    recall: float
    f1: float


_MAIN = """
OC-SVM               44.34 76.72 56.19  59.78 86.87 70.82  53.85 59.07 56.34  45.39 49.22 47.23  62.75 80.89 70.67
IsolationForest      42.31 73.29 53.64  53.94 86.54 66.45  52.39 59.07 55.53  49.29 44.95 47.02  76.09 92.45 83.48
LOF                  56.34 39.86 46.68  47.72 85.25 61.18  58.93 56.33 57.60  72.15 65.43 68.62  57.89 90.49 70.61
Deep-SVDD            78.54 79.67 79.10  91.92 76.63 83.58  89.93 56.02 69.04  80.42 84.45 82.39  95.41 86.49 90.73
DAGMM                67.30 49.89 57.30  89.60 63.93 74.62  86.45 56.73 68.51  89.92 57.84 70.40  93.49 70.03 80.08
MMPCACD              71.20 79.28 75.02  81.42 61.31 69.95  88.61 75.84 81.73  82.52 68.29 74.73  76.26 78.35 77.29
VAR                  78.35 70.26 74.08  74.68 81.42 77.90  81.38 53.88 64.83  81.59 60.29 69.34  90.71 83.82 87.13
LSTM                 78.55 85.28 81.78  85.45 82.50 83.95  89.41 78.13 83.39  86.15 83.27 84.69  76.93 89.64 82.80
CL-MPPCA             82.36 76.07 79.09  73.71 88.54 80.44  86.13 63.16 72.88  76.78 81.50 79.07  56.02 99.93 71.80
ITAD                 86.22 73.71 79.48  69.44 84.09 76.07  82.42 66.89 73.85  63.13 52.08 57.08  72.80 64.02 68.13
LSTM-VAE             75.76 90.08 82.30  85.49 79.94 82.62  92.20 67.75 78.10  76.00 89.50 82.20  73.62 89.92 80.96
BeatGAN              72.90 84.09 78.10  89.75 85.42 87.53  92.38 55.85 69.61  64.01 87.46 73.92  90.30 93.84 92.04
OmniAnomaly          83.68 86.82 85.22  89.02 86.37 87.67  92.49 81.99 86.92  81.42 84.30 82.83  88.39 74.46 80.83
InterFusion          87.02 85.43 86.22  81.28 92.70 86.62  89.77 88.52 89.14  80.59 85.58 83.01  83.61 83.45 83.52
THOC                 79.76 90.95 84.99  88.45 90.97 89.69  92.06 89.34 90.68  83.94 86.36 85.13  88.14 90.99 89.54
BOCPD                70.90 82.04 76.07  80.32 87.20 83.62  84.65 85.85 85.24  89.46 70.75 79.01  80.22 75.33 77.70
TS-CP2               87.42 66.25 75.38  86.45 68.48 76.42  87.65 83.18 85.36  81.23 74.10 77.50  82.67 78.16 80.35
U-Time               65.95 74.75 70.07  57.20 71.66 63.62  49.71 56.18 52.75  46.20 87.94 60.58  82.85 79.34 81.06
Anomaly Transformer  89.40 95.45 92.33  92.09 95.15 93.59  94.13 99.40 96.69  91.55 96.73 94.07  96.91 98.90 97.89
"""  # per method: precision, recall and F1 on each data set


def _parsed(text: str) -> dict[str, tuple[Quoted, ...]]:
    lines = [[cell for cell in line.split("  ") if cell.strip()] for line in text.strip().splitlines()]
    return {name: tuple(Quoted(*map(float, cell.split())) for cell in cells) for name, *cells in lines}


MAIN = _parsed(_MAIN)
"""The eighteen methods that the paper compares itself with, and its own."""

OURS = tuple(cell.f1 for cell in MAIN["Anomaly Transformer"])
RECONSTRUCTION = (71.35, 78.61, 69.12, 81.53, 80.40)

# Per table and variant: F1 on smd, msl, smap, swat, psm. A pair names the criterion where it is not the paper's.
F1: dict[str, dict[str | tuple[str, str], tuple[float, ...]]] = {
    "main": {"Anomaly Transformer": OURS, ("Anomaly Transformer", "reconstruction"): RECONSTRUCTION},
    "published": {"Anomaly Transformer": OURS, ("Anomaly Transformer", "reconstruction"): RECONSTRUCTION},
    "criterion": {
        ("one checkpoint", "reconstruction"): RECONSTRUCTION,
        ("one checkpoint", "discrepancy"): (87.57, 90.50, 90.98, 93.21, 95.47),
        ("one checkpoint", "addition"): (73.73, 87.72, 69.39, 83.14, 97.61),
        "one checkpoint": OURS,
    },
    "strategy": {
        ("reconstruction", "reconstruction"): (79.72, 76.64, 73.74, 74.56, 78.43),
        "max": (88.88, 85.20, 87.84, 81.65, 93.83),
        "minimax": OURS,
        ("minimax", "reconstruction"): RECONSTRUCTION,
    },
    "prior": {
        "fixed, max": (83.95, 82.17, 70.65, 79.46, 79.04),
        "learned": OURS,
        "power law": (90.91, 88.34, 71.31, 92.90, 97.30),
    },
    "distance": {
        "kl": OURS,
        "js": (87.64, 91.80, 94.98, 89.78, 96.93),
        "wasserstein": (75.17, 45.58, 70.40, 80.55, 78.43),
        "cross-entropy": (84.92, 88.22, 75.67, 70.93, 80.96),
        "l2": (79.69, 83.39, 70.00, 83.51, 81.24),
    },
    "layers-used": {
        "layer 1": (89.92, 92.19, 96.26, 92.27, 97.35),
        "layer 2": (91.02, 91.60, 96.15, 92.49, 97.35),
        "layer 3": (90.46, 90.19, 96.04, 89.96, 85.02),
        "all layers": OURS,
    },
    "depth": {
        "L = 1": (91.43, 94.71, 96.38, 93.42, 97.41),
        "L = 2": (91.72, 93.29, 96.28, 93.47, 97.72),
        "L = 3": OURS,
        "L = 4": (92.58, 93.61, 96.37, 93.41, 97.44),
    },
    "width": {
        "width 256": (90.30, 94.70, 96.52, 93.95, 97.77),
        "width 512": OURS,
        "width 1024": (92.76, 93.37, 96.43, 93.49, 96.94),
    },
    "threshold": {"by r": OURS, "by delta": (92.71, 93.47, 97.96, 90.29, 97.96)},
}

# Mean association weight of adjacent time points in percent, abnormal and normal, on smd, msl, smap, swat, psm.
CONTRAST: dict[str, tuple[tuple[float, float], ...]] = {
    "reconstruction": ((1.08, 0.94), (1.01, 1.00), (1.29, 1.23), (1.27, 1.18), (1.02, 0.99)),
    "max": ((0.95, 0.75), (0.65, 0.59), (1.18, 1.09), (0.89, 0.78), (0.56, 0.54)),
    "minimax": ((0.86, 0.36), (0.35, 0.22), (0.70, 0.49), (0.37, 0.21), (0.29, 0.11)),
}

UCR: dict[str, Quoted] = {
    "LSTM-VAE": Quoted(62.08, 97.60, 75.89),
    "InterFusion": Quoted(60.74, 95.20, 74.16),
    "OmniAnomaly": Quoted(64.21, 86.93, 73.86),
    "THOC": Quoted(54.61, 80.83, 65.19),
    "Deep-SVDD": Quoted(47.08, 88.91, 61.56),
    "BeatGAN": Quoted(45.20, 88.42, 59.82),
    "LOF": Quoted(41.47, 98.80, 58.42),
    "OC-SVM": Quoted(41.14, 94.00, 57.23),
    "IsolationForest": Quoted(40.77, 93.60, 56.80),
    "Anomaly Transformer": Quoted(72.80, 99.60, 84.12),
}

DELTA = {"smd": 0.1, "msl": 0.1, "swat": 0.1, "smap": 0.01, "psm": 0.01}
"""The fixed thresholds of the paper's appendix."""

INTERVALS: dict[str, tuple[int, int, int]] = {
    "smd": (140_925, 2, 754),
    "msl": (11_537, 8, 119),
    "swat": (98_849, 17, 134),
    "smap": (26_732, 0, 305),
    "psm": (26_223, 5, 269),
}
"""Validation scores up to a tenth of `DELTA`, up to `DELTA`, and above it (the paper's table of score intervals)."""

ROWS: dict[str, tuple[int, int]] = {
    "smd": (566_724, 141_681),
    "psm": (105_984, 26_497),
    "msl": (46_653, 11_664),
    "smap": (108_146, 27_037),
    "swat": (396_000, 99_000),
}
"""Training and validation rows."""

RATIO = {"swat": 0.001, "smd": 0.005}
"""r of the main results; 1 % for all others."""


def ratio_of(dataset: str) -> float:
    """The paper's r."""
    return RATIO.get(dataset, 0.01)


def f1(table: str, variant: str, mode: str, dataset: str) -> float | None:
    """F1 in percent; `paper` and `published` are two readings of the one criterion that the paper reports."""
    found = F1.get(table, {})
    key: str | tuple[str, str] = variant if mode in ("paper", "published") else (variant, mode)
    if dataset not in DATASETS or key not in found:
        return None
    return found[key][DATASETS.index(dataset)]
