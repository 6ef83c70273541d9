"""Plans of a training step that were made before: taken from a file or a folder, where they are for its program."""

from collections.abc import Callable
from pathlib import Path

from lowtide.core.errors import FingerprintError
from lowtide.engine.planning.plan_file import result_of_file
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.plan_folder import load_plan


class FollowedPlan:
    """What finds the plan of a step's program: in a plan file or a folder of them, else, once it is lenient, anew."""

    def __init__(
        self, path: Path, settings: PlanSettings, otherwise: Callable[[TorchModel], Result], *, over_budget: bool
    ) -> None:
        self._path = path
        self._settings = settings
        self._otherwise = otherwise
        self._over_budget = over_budget
        self.is_lenient = False
        """Whether programs that no plan here is for are planned anew: those of batches of another form."""

    def __call__(self, model: TorchModel) -> Result:
        """Return the plan of a program.

        Raises FingerprintError where none is for it, unless that is allowed, and VerificationError for one that does
        not fit.
        """
        try:
            if self._path.is_dir():
                return load_plan(model, self._path, self._settings, over_budget=self._over_budget)
            return result_of_file(self._path, model, self._settings, over_budget=self._over_budget)
        except FingerprintError:
            if not self.is_lenient:
                raise
            return self._otherwise(model)
