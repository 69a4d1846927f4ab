"""Workflows: what people do with the package, from data to a result that shows itself.

Each is a function that returns a result object; the command line, a deployed job and a notebook call the same code.
Names come when they are first used: a command loads its own workflow and no other.
"""

from typing import TYPE_CHECKING

from fedcalib.registry import lazily

if TYPE_CHECKING:
    from fedcalib.workflows.application import Applied, apply
    from fedcalib.workflows.calibration import CalibrationResult, calibrate
    from fedcalib.workflows.comparison import compare
    from fedcalib.workflows.comparison_result import ComparisonResult
    from fedcalib.workflows.evaluation import evaluate
    from fedcalib.workflows.evaluation_result import EvaluationResult
    from fedcalib.workflows.monitoring import monitor
    from fedcalib.workflows.monitoring_result import MonitorResult
    from fedcalib.workflows.planning import StudyPlan, plan
    from fedcalib.workflows.result import WorkflowResult
    from fedcalib.workflows.training import TrainingResult, train

__all__ = ["Applied", "CalibrationResult", "ComparisonResult", "EvaluationResult"]
__all__ += ["MonitorResult", "StudyPlan", "TrainingResult", "WorkflowResult"]
__all__ += ["apply", "calibrate", "compare", "evaluate", "monitor", "plan", "train"]

__getattr__ = lazily(
    __name__,
    {
        "application": ("Applied", "apply"),
        "calibration": ("CalibrationResult", "calibrate"),
        "comparison": ("compare",),
        "comparison_result": ("ComparisonResult",),
        "evaluation": ("evaluate",),
        "evaluation_result": ("EvaluationResult",),
        "monitoring": ("monitor",),
        "monitoring_result": ("MonitorResult",),
        "planning": ("StudyPlan", "plan"),
        "result": ("WorkflowResult",),
        "training": ("TrainingResult", "train"),
    },
)
