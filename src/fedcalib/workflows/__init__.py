"""Workflows: what people do with the package, from data to a result that shows itself.

Each is a function that returns a result object; the command line, a deployed job and a notebook call the same code.
"""

from fedcalib.workflows.application import Applied, apply
from fedcalib.workflows.calibration import CalibrationResult, calibrate
from fedcalib.workflows.comparison import compare
from fedcalib.workflows.comparison_result import ComparisonResult
from fedcalib.workflows.evaluation import evaluate
from fedcalib.workflows.evaluation_result import EvaluationResult
from fedcalib.workflows.monitoring import MonitorResult, monitor
from fedcalib.workflows.planning import StudyPlan, plan
from fedcalib.workflows.training import TrainingResult, train

__all__ = ["Applied", "CalibrationResult", "ComparisonResult", "EvaluationResult"]
__all__ += ["MonitorResult", "StudyPlan", "TrainingResult"]
__all__ += ["apply", "calibrate", "compare", "evaluate", "monitor", "plan", "train"]
