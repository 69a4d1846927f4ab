"""Auto beside every central calibrator and every other method of the package."""
