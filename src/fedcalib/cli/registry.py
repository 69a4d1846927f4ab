"""Every method and privacy model that a word on the command line can name. One line each adds one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast, final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.method import Method
from fedcalib.privacy import Privacy


@final
@dataclass(frozen=True)
class Entry:
    """A class that can be chosen by a word, imported when it is."""

    word: str
    module: str
    name: str

    @property
    def there(self) -> bool:
        """Say whether this version has it."""
        return find_spec(f"fedcalib.{self.module}") is not None

    @property
    def cls(self) -> Any:
        """Import it."""
        return getattr(import_module(f"fedcalib.{self.module}"), self.name)

    @property
    def summary(self) -> str:
        """Say in a sentence what it does."""
        return (self.cls.__doc__ or "").split("\n", 1)[0]

    @property
    def options(self) -> dict[str, Any]:
        """Name its options with their defaults; None where one has to be given."""
        return {field.name: None if field.default is MISSING else field.default for field in fields(self.cls)}

    def build(self, options: Mapping[str, Any]) -> Any:
        """Make one, from the options that were given."""
        known = self.options
        for name in options:
            if name not in known:
                raise InputError(
                    f"Expected options of {self.word} ({', '.join(known) or 'it has none'}), found '{name}'."
                )
        required = [field.name for field in fields(self.cls) if field.default is MISSING and field.name not in options]
        if required:
            raise InputError(f"Expected --{required[0].replace('_', '-')} with {self.word}, found none; state it.")
        return self.cls(**options)


def kebab(name: str) -> str:
    """Spell a class's name as a word of the command line: FedBBQ is fed-bbq."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def _method(module: str, name: str, word: str = "") -> Entry:
    return Entry(word or kebab(name), f"methods.{module}", name)


METHODS: Final = (
    _method("fed_bin", "FedBin"),
    _method("fed_bbq", "FedBBQ"),
    _method("fed_scaling", "FedTemp"),
    _method("fed_scaling", "FedVector"),
    _method("fed_scaling", "FedMatrix"),
    _method("fed_scaling", "FedOPVector"),
    _method("fed_scaling", "FedCal"),
    _method("temperature", "OneShotTemperature"),
    _method("temperature", "BoundedTemperature"),
    _method("ridge_scaling", "RidgeOPVector"),
    _method("ridge_scaling", "RidgeVector"),
    _method("residual_binning", "ResidualBinning"),
    _method("residual_binning", "ClassShifts"),
    _method("auto", "Auto"),
    _method("platt", "PlattScaling"),
    _method("platt", "BetaScaling"),
    _method("score_binning", "QuantileBinning"),
    _method("score_binning", "IsotonicBuckets"),
    _method("score_binning", "BinaryBBQ"),
    _method("domain_shift", "AccT"),
    _method("domain_shift", "NLLT", "nll-t"),
    _method("domain_shift", "ECET", "ece-t"),
    _method("domain_shift", "SourceBinning"),
)

MODELS: Final = (
    Entry("open", "privacy.open", "Open"),
    Entry("secagg", "privacy.secagg", "SecAgg"),
    Entry("distributed", "privacy.distributed", "DistributedDP"),
    Entry("local", "privacy.local", "LocalDP"),
    Entry("user", "privacy.user_gaussian", "UserGaussian"),
    Entry("laplace", "privacy.source_laplace", "SourceLaplace"),
)


def method(word: str | None, options: Mapping[str, Any], settings: Sequence[str] = ()) -> Method[Calibrator]:
    """Make the method that a word names; settings are written as name=value."""
    entry = _chosen(word, METHODS, "--method")
    given = {name: value for name, value in options.items() if value is not None}
    return cast(Method[Calibrator], entry.build({**given, **_settings(entry, settings)}))


def privacy(word: str | None, options: Mapping[str, Any]) -> Privacy:
    """Make the privacy model that a word names."""
    entry = _chosen(word, MODELS, "--privacy")
    if not entry.there:
        raise InputError(f"Expected a privacy model of this version, found {word}, which it does not have yet.")
    return cast(Privacy, entry.build({name: value for name, value in options.items() if value is not None}))


def takes(word: str | None, option: str) -> bool:
    """Say whether a privacy model has an option of its own."""
    return any(entry.word == word and entry.there and option in entry.options for entry in MODELS)


def _chosen(word: str | None, entries: tuple[Entry, ...], flag: str) -> Entry:
    found = next((entry for entry in entries if entry.word == word), None)
    if found is None:
        words = ", ".join(entry.word for entry in entries if entry.there)
        raise InputError(f"Expected {flag} with one of {words}, found {word or 'none'}.")
    return found


def _settings(entry: Entry, settings: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        plain = {key: value for key, value in entry.options.items() if isinstance(value, bool | int | float | str)}
        if not sign or name not in plain:
            names = ", ".join(plain)
            raise InputError(f"Expected --set NAME=VALUE with one of {names}, found '{setting}'.")
        values[name] = _value(text, entry.options[name], setting)
    return values


def _value(text: str, default: Any, setting: str) -> Any:
    """Read a value as the kind that its default is."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return text if isinstance(default, str) else int(text) if isinstance(default, int) else float(text)
    except (ValueError, KeyError) as error:
        raise InputError(f"Expected a value like {default!r}, found --set {setting}.") from error
