"""Audits: how much a release is seen to give away, against what it claims to.

An audit plays a game. It draws many releases with a unit and many without it, looks for an event that tells the two
apart, and turns how well that worked into a lower bound on epsilon. A bound above the claim is a proof, at the stated
confidence, that the claim is wrong. A bound below it is no proof that the claim is right; how close it comes says how
hard the audit tried.
"""

from __future__ import annotations

from fedcalib.audit.evidence import Audit as Audit
from fedcalib.audit.mechanisms import audit_mechanism as audit_mechanism
from fedcalib.audit.runs import (
    Case as Case,
)
from fedcalib.audit.runs import (
    audit_model as audit_model,
)
from fedcalib.audit.runs import (
    audit_run as audit_run,
)
from fedcalib.audit.runs import (
    worst_cases as worst_cases,
)
