"""Audits: lower bounds on epsilon from many releases, to compare with the epsilon that is claimed.

An audit makes many releases with a privacy unit and many without it, looks for an event that distinguishes the two, and
turns its error rates into a lower bound on epsilon. A bound above the claim is a proof, at the stated confidence, that
the claim is wrong. A bound below it does not prove that the claim is right; how close it is shows how powerful the
audit was.

`audit_mechanism` audits one release of one query, `audit_model` a privacy model on worst cases, `audit_run` whole runs
of a method, and `audit_outputs` whatever a workflow or a pipeline writes.
"""

from __future__ import annotations

from fedcalib.audit.evidence import Audit as Audit
from fedcalib.audit.mechanisms import audit_mechanism as audit_mechanism
from fedcalib.audit.outputs import audit_outputs as audit_outputs
from fedcalib.audit.runs import Case as Case
from fedcalib.audit.runs import audit_model as audit_model
from fedcalib.audit.runs import audit_run as audit_run
from fedcalib.audit.runs import worst_cases as worst_cases
