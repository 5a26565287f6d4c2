"""Options of `octavo serve` that name what is not there, or that have no effect beside the models that are given. They are refused at the start, as by the other
commands (src/cli/effect.h).

What a later load brings may differ: a folder can get files of another kind, and a file can be replaced. An option that may have an effect then is not refused; a
note says that it has none now. That is so for options about builds where a folder is served, and always for those that make loads safer."""
import pathlib
from typing import List, Mapping, Optional, Sequence, Tuple

from .. import build, load
from .._errors import EngineFileError, Error, UsageError
from ._models import Version, find, named
from ._settings import Settings

# Options that engine files do not ask about, with what is to be done.
_OF_BUILDS = {"--effort": "build it again: octavo build MODEL.onnx -o {file} {given}", "--timing-cache": "build it again: octavo build MODEL.onnx -o {file} {given}",
              "--max-shapes": "leave it out"}
Given = Mapping[str, str]  # options as they were given: {"--device": "cuda"}


def check_names(settings: Settings) -> None:
    """The device and the key, whatever is served. Raises UsageError, FileError, UnsupportedError."""
    try:
        build(b"", settings.device)  # the device is looked up first
    except UsageError:
        raise
    except Error:  # the model is empty
        pass
    if settings.verify is not None:
        try:
            load(b"", verify=settings.verify)
        except EngineFileError:  # that it is none is found with the key
            pass


def refuse(models: Sequence[str], given: Given) -> None:
    """Before anything is loaded. Raises UsageError for the first option that has no effect, and what find() raises."""
    file = _engine_file(models)
    for option, way in _OF_BUILDS.items() if file else ():
        if option in given:
            text = f"{option} {given[option]}"
            raise UsageError(f'{text} has no effect: it applies to builds, and "{file}" is an engine, which is already built\n  {way.format(file=file, given=text)}')


def look(models: Sequence[str], loaded: Sequence[Version], given: Given) -> List[str]:
    """Notes about options that have no effect on what is loaded now. Raises UsageError where they cannot have one later either."""
    engines = [version for version in loaded if not version.source.built]
    notes: List[Tuple[str, str]] = []
    if len(engines) == len(loaded):
        notes += [(option, "it applies to builds, and all that is served are engines") for option in _OF_BUILDS]
        why, to_do = _other_device(engines, given["--device"]) if "--device" in given else (None, "")
        if why is not None:
            if _engine_file(models):
                raise UsageError(f"--device {given['--device']} has no effect: {why}\n  {to_do}")
            notes.append(("--device", why))
    if not any(version.any_rows for version in loaded):
        notes.append(("--batch", "no model has an open batch"))
    if not engines:
        notes.append(("--verify", "it applies to engine files, and none is served"))
    if given.get("--code") == "rebuild" and not any(version.device == "cuda" for version in engines):
        notes.append(("--code", "it applies to engine files for a GPU, and none is served"))
    return [f"note: {option} {given[option]} has no effect now: {why}" for option, why in notes if option in given]


def _engine_file(models: Sequence[str]) -> Optional[pathlib.Path]:
    """The first one, if all that is served are engine files, now and later; else None."""
    if any(path.is_dir() for argument in models for path in named(argument)[2]):
        return None
    sources = [source for argument in models for source in find(argument)]
    return None if any(source.built for source in sources) else sources[0].files[0]


def _other_device(engines: Sequence[Version], device: str) -> Tuple[Optional[str], str]:
    """Why `device` is not where engine files run, None where it is; and what is to be done."""
    name = device[:-len(",cpu")] if device.endswith(",cpu") else device
    kind, _, which = name.partition(":")
    for version in engines:
        file = version.source.files[0]
        if version.device != kind:
            return f'"{file}" is an engine that was built for {version.device}', f"build one: octavo build MODEL.onnx -o {file} --device {device}"
    if which not in ("", "0"):
        return f'"{engines[0].source.files[0]}" is an engine, and engine files run on the first GPU', "leave it out; CUDA_VISIBLE_DEVICES says which GPU is the first"
    return None, ""
