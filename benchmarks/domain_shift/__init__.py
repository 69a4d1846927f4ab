"""Recalibration after a domain shift: tables and figures of the published study, and ours beside it."""
