"""A job file as a job: its owners, their files, the task and how it is solved, checked against each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpact.data.cells import column_names
from fedpact.errors import DataError, OptionError
from fedpact.federation.identity import check_public_keys
from fedpact.jobs.job_text import JobText, nth
from fedpact.jobs.party_tables import find_holders
from fedpact.solvers import METHODS
from fedpact.tasks import TASKS, Regression, TableTask, Task, Vertical, keys_of
from fedpact.tasks.base import SERVER
from fedpact.tasks.network_file import NetworkFile, names_file
from fedpact.tasks.requirements import Levels, Requirement, check_holder, read_requirement

#: How an owner is written that is a site of a Flower federation: this, and the address of the SuperLink.
FLOWER = "flower://"
#: Keys of tasks that may be a table by owner.
BY_OWNER = ("bound", "max_loss", "max_mean_error", "max_gap", "owners_weigh")


@dataclass(frozen=True, eq=False)
class JobFile:
    """A job that was read and checked.

    task:      what the owners agree on
    owners:    name -> its file, or the Flower address
    compare:   train without the constraints too
    curves:    count scores in bins, for the report; trade_off: train for other bounds, too
    solve:     of `fp.fit` and `fp.Session`, by key
    options:   of the method
    output:    folder of the run
    messages:  keep every message in it
    track:     names of trackers, see `fedpact.report.tracking`
    server:    the coordinator's own table, or None
    superlink: address of the SuperLink that the owners' sites connect to, or ""
    flower:    table [flower]: root_certificates, key, superexec_secret and patience
    roster:    public keys of the sites, by owner
    keys:      name -> file of the owner's private key; empty: nobody signs
    holdout:   name -> table of the owner that nobody trains on, for `fedpact evaluate`
    alignment_key: file of the key of keyed hashes, which parties of this machine share; None: there is none
    settings:  the whole as it was read, for the report
    """

    path: Path
    title: str
    task: Task
    owners: dict[str, str]
    output: Path
    compare: bool = True
    curves: bool = True
    trade_off: bool = False
    messages: bool = False
    track: tuple[str, ...] = ()
    server: Path | None = None
    superlink: str = ""
    flower: dict[str, Any] = field(default_factory=dict)
    roster: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Path] = field(default_factory=dict)
    holdout: dict[str, Path] = field(default_factory=dict)
    alignment_key: Path | None = None
    solve: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def reads(self) -> list[Path]:
        """The job itself, and all tables and keys that it names on this machine."""
        tables = [] if self.superlink else [Path(path) for path in self.owners.values()]
        server = [] if self.server is None else [self.server]
        return [self.path, *tables, *server, *self.holdout.values(), *self.keys.values()]


def read_job(path: str | Path) -> JobFile:
    """Read and validate a job file; relative paths are resolved against its folder.

    Raises OptionError, or DataError for a table whose header cannot be read, with file and line.
    """
    return _Reader(Path(path)).read()


class _Reader(JobText):
    """One job file under validation, from its tables to what they mean together."""

    def read(self) -> JobFile:
        found = self.parse()
        name = self._task_name(found)
        self.check_keys(found, name)
        owners = self._owners(found)
        superlink = self._superlink(owners)
        files: dict[str, Path] = {}
        if not superlink:
            files = {owner: self._file("owners", owner, path) for owner, path in owners.items()}
            owners = {owner: str(file) for owner, file in files.items()}
        server: Path | None = None
        if "data" in found.get("server", {}):
            server = self._file("server", "data", found["server"]["data"])
        solve = dict(found.get("solve", {}))
        options = dict(solve.pop("options", {}))
        self._check_solve(solve, options, superlink)
        output = found.get("output", {})
        return JobFile(
            path=self.path,
            title=found.get("title", self.path.stem),
            task=self._task(found, TASKS[name], files, server),
            owners=owners,
            output=self.folder / output.get("folder", "run"),
            compare=solve.pop("compare", True),
            curves=solve.pop("curves", True),
            trade_off=solve.pop("trade_off", False),
            messages=output.get("messages", False),
            track=tuple(dict.fromkeys(output.get("track", ()))),
            server=server,
            superlink=superlink,
            flower=self._flower(found, superlink),
            roster=self._roster(found, owners, superlink),
            keys=self._keys(found, superlink),
            holdout=self._holdout(found, superlink),
            alignment_key=self._alignment_key(found, superlink),
            solve=solve,
            options=options,
            settings=found,
        )

    # ---------------------------------------------------------------------------------------------------- task, solve

    def _task_name(self, found: Mapping[str, Any]) -> str:
        if "task" not in found:
            raise OptionError(f"{self.path}: task is not stated; choose {', '.join(TASKS)}", code="FP-OPTION-365")
        self.check_choice("", "task", found["task"], list(TASKS))
        return str(found["task"])

    def _check_solve(self, solve: Mapping[str, Any], options: dict[str, Any], superlink: str) -> None:
        if not 0 < solve.get("tol", 1e-3) < 1:
            self.fail("FP-OPTION-371", "solve", "tol", f"tol = {solve['tol']}: give a number above 0 and below 1")
        engine = solve.get("engine")
        if engine is not None and (engine == "flower") != bool(superlink):
            self.fail(
                "FP-OPTION-372",
                "solve",
                "engine",
                f'{engine!r} does not fit the owners: "flower" is for owners at "{FLOWER}..."; correct one of the two',
            )
        if not options:
            return
        method = solve.get("method", "auto")
        if method == "auto":
            self.fail(
                "FP-OPTION-373", "solve", "method", "[solve.options] are those of a method: state it, method = ..."
            )
        try:
            METHODS[method].build(options)
        except OptionError as error:
            raise self.place(error, "solve.options", next(iter(options))) from error

    # ----------------------------------------------------------------------------------------------------------- owners

    def _owners(self, found: Mapping[str, Any]) -> dict[str, str]:
        owners = found.get("owners")
        if not owners:
            raise OptionError(
                f'{self.path}: there are no owners; add a table [owners] with lines such as north = "north.csv"',
                code="FP-OPTION-374",
            )
        seen: dict[str, str] = {}
        for name, path in owners.items():
            if not isinstance(path, str):
                self.fail("FP-OPTION-375", "owners", name, f"{name} = {path!r}: give the path of its file in quotes")
            if name == SERVER:
                self.fail(
                    "FP-OPTION-376",
                    "owners",
                    name,
                    f"{SERVER!r} stands for the coordinator; give this owner another name",
                )
            if path in seen and not path.startswith(FLOWER):
                self.fail(
                    "FP-OPTION-377",
                    "owners",
                    name,
                    f"owners {seen[path]!r} and {name!r} have the same file {path!r}; give each its own",
                )
            seen[path] = name
        return dict(owners)

    def _superlink(self, owners: Mapping[str, str]) -> str:
        """The address of the SuperLink that all owners name; empty where the owners are files."""
        addresses = {name: path.removeprefix(FLOWER) for name, path in owners.items() if path.startswith(FLOWER)}
        if not addresses:
            return ""
        first = next(iter(addresses.values()))
        for name in owners:
            if name not in addresses:
                self.fail(
                    "FP-OPTION-378",
                    "owners",
                    name,
                    f"a file among Flower sites; write {FLOWER}ADDRESS for all owners or for none",
                )
            if addresses[name] != first:
                self.fail(
                    "FP-OPTION-379",
                    "owners",
                    name,
                    "another address than the first owner's; all sites share one SuperLink: state its address",
                )
        return first

    def _flower(self, found: Mapping[str, Any], superlink: str) -> dict[str, Any]:
        """The table [flower], with the paths of its files."""
        flower = dict(found.get("flower", {}))
        if flower and not superlink:
            self.fail("FP-OPTION-380", "", "flower", f'[flower] is for owners at "{FLOWER}..."; take it out')
        if superlink and "key" not in flower:
            raise OptionError(
                f"{self.path}: [flower] has no key, with which the coordinator signs the job; `fedpact site key FILE` "
                "makes one: give its public key to every site, and state key = FILE",
                code="FP-OPTION-622",
            )
        for key in ("root_certificates", "key", "superexec_secret"):
            if key in flower:
                flower[key] = str(self._file("flower", key, flower[key]))
        return flower

    def _roster(self, found: Mapping[str, Any], owners: Mapping[str, str], superlink: str) -> dict[str, str]:
        """The table [roster]: exactly the owners that are sites, each with its public key."""
        roster = found.get("roster", {})
        wanted = set(owners) if superlink else set()
        for name in sorted(wanted ^ roster.keys()):
            self.fail(
                "FP-OPTION-623",
                "roster",
                name,
                f"{name!r}: [roster] has one public key for each owner at {FLOWER}..., and for nobody else; "
                "`fedpact site key FILE` prints it at the site",
            )
        return check_public_keys(roster, f"{self.path}: [roster]")

    def _keys(self, found: Mapping[str, Any], superlink: str) -> dict[str, Path]:
        """The file of every owner's private key, from [keys]."""
        stated = found.get("keys", {})
        if stated and superlink:
            self.fail("FP-OPTION-632", "", "keys", "[keys]: sites have their own keys; take the table out")
        if stated and stated.keys() != found["owners"].keys():
            owners = ", ".join(found["owners"])
            self.fail("FP-OPTION-633", "", "keys", f"[keys] names {', '.join(stated)}; give one for each of {owners}")
        return {owner: self._file("keys", owner, path) for owner, path in stated.items()}

    def _holdout(self, found: Mapping[str, Any], superlink: str) -> dict[str, Path]:
        """The tables that nobody trains on, from [holdout]: of the owners, or of some of them."""
        stated = found.get("holdout", {})
        if stated and superlink:
            self.fail(
                "FP-OPTION-833", "", "holdout", '[holdout]: sites have their own; state holdout = "..." in site.toml'
            )
        known = tuple(found["owners"])
        if issubclass(TASKS[found["task"]], Vertical):
            known = (*known, SERVER)  # who may hold the labels
        self._check_names("holdout", stated, known)
        return {owner: self._file("holdout", owner, path) for owner, path in stated.items()}

    def _alignment_key(self, found: Mapping[str, Any], superlink: str) -> Path | None:
        """The file of the key of keyed hashes, for parties on this machine."""
        path = found.get("solve", {}).get("alignment_key")
        if path is None:
            return None
        if superlink:
            self.fail(
                "FP-OPTION-950",
                "solve",
                "alignment_key",
                "alignment_key: sites have their own, which the coordinator must not have; take it out",
            )
        return self._file("solve", "alignment_key", path)

    def _file(self, table: str, key: str, path: str) -> Path:
        file = self.folder / path
        if not file.is_file():
            what = f"of owner {key!r} " if table in ("owners", "keys", "holdout") else ""
            self.fail(
                "FP-OPTION-381",
                table,
                key,
                f"the file {what}does not exist: {file}; correct the path, or put the file there",
            )
        return file

    # ------------------------------------------------------------------------------------------------------------- task

    def _task(self, found: Mapping[str, Any], kind: type[Task], files: Mapping[str, Path], server: Path | None) -> Task:
        keys = keys_of(kind)
        stated = {field: found[name] for name, (field, _, _) in keys.items() if name in found}
        if issubclass(kind, TableTask):
            stated["columns"] = self._columns(found, files, server)
            stated.setdefault("standardize", True)
        elif issubclass(kind, Vertical):
            headers = self._headers(files, server)
            stated |= find_holders(found, headers, server is not None, self.fail)
        for name in ("classes", "groups"):
            if name in stated:
                stated[name] = tuple(map(str, stated[name]))
        if "protected" in stated:
            stated["protected"] = str(stated["protected"])
        if "constraints" in stated:
            levels = Levels(stated.get("classes", keys["classes"][1]))
            stated["constraints"] = self._constraints(found, levels, server)
        if "functions" in stated:
            stated["functions"] = str(self._file("", "functions", stated["functions"]).resolve())
        self._check_bound(found, kind)
        try:
            if names_file(stated.get("model", "")):
                stated["code"] = NetworkFile.find(stated["model"], self.folder)
            return kind(owners=len(found["owners"]), **stated)
        except OptionError as error:
            names = {field: name for name, (field, _, _) in keys.items()}
            raise self.place(error, "", names.get(error.key, "")) from error

    def _constraints(self, found: Mapping[str, Any], levels: Levels, server: Path | None) -> tuple[Requirement, ...]:
        """The list of constraints; an error points at its place in the table that it is about."""
        read = []
        for number, stated in enumerate(found["constraint"], 1):
            table = nth("constraint", number)
            self._check_sides(table, stated, found["owners"])
            if "of" in stated:
                stated = {**stated, "of": str(stated["of"])}
            try:
                one = read_requirement(number, stated)
                levels.class_of(one)
                check_holder(one, server)
            except OptionError as error:
                raise self.place(error, table, error.key) from error
            read.append(one)
        return tuple(read)

    def _check_sides(self, table: str, stated: Mapping[str, Any], owners: Mapping[str, Any]) -> None:
        """Bounds by owner are those of the owners."""
        for side in ("at_least", "at_most"):
            if isinstance(stated.get(side), dict):
                self._check_owners(f"{table}.{side}", stated[side], owners)

    def _check_bound(self, found: Mapping[str, Any], kind: type[Task]) -> None:
        if "bound" in found and "min_recall" in found:
            self.fail(
                "FP-OPTION-382",
                "",
                "min_recall",
                "min_recall and bound are both stated; min_recall finds the bounds by itself: take one of them out",
            )
        for name in BY_OWNER:
            if isinstance(found.get(name), dict) and issubclass(kind, Regression) and name != "owners_weigh":
                self._check_names(name, found[name], found["owners"])  # the others have no bound
            elif isinstance(found.get(name), dict):
                self._check_owners(name, found[name], found["owners"])

    def _check_owners(self, key: str, stated: Mapping[str, Any], owners: Mapping[str, Any]) -> None:
        """A table by owner has an entry for each, and for nobody else but the server."""
        self._check_names(key, stated, (*owners, SERVER))
        table, _, name = key.rpartition(".")
        for owner in owners:
            if owner not in stated:
                self.fail(
                    "FP-OPTION-384",
                    table,
                    name,
                    f"[{name}] has no entry for owner {owner!r}; give one for every owner",
                )

    def _check_names(self, table: str, stated: Iterable[str], known: Collection[str]) -> None:
        """All names in this table are known ones."""
        for name in stated:
            if name not in known:
                owners = ", ".join(one for one in known if one != SERVER)
                self.fail("FP-OPTION-383", table, name, f"{name!r} is not an owner; the owners are: {owners}")

    def _columns(self, found: Mapping[str, Any], files: Mapping[str, Path], server: Path | None) -> tuple[str, ...]:
        """The features: as stated, or all other columns of the first owner; every owner has them all."""
        if not found.get("label"):
            raise OptionError(
                f'{self.path}: label is not stated; add a line label = "..." with the column to predict',
                code="FP-OPTION-385",
            )
        headers = self._headers(files, server)
        named = {key: found[key] for key in ("label", "group", "offset", "sample_weight", "cluster") if found.get(key)}
        for key, column in named.items():
            self._check_column(key, column, headers)
        if "features" in found:
            for column in found["features"]:
                self._check_column("features", column, headers)
            return tuple(found["features"])
        if not headers:
            raise OptionError(
                f"{self.path}: features are not stated; list the columns that every site has", code="FP-OPTION-386"
            )
        return self._common_columns(headers, without=tuple(named.values()))

    def _common_columns(self, headers: Mapping[str, Sequence[str]], without: Sequence[str]) -> tuple[str, ...]:
        """All columns of the first owner but these; the others have them too."""
        first, *others = headers
        columns = tuple(column for column in headers[first] if column not in without)
        for owner in others:
            for column in columns:
                if column not in headers[owner]:
                    self.fail(
                        "FP-OPTION-387",
                        "owners",
                        owner,
                        f"owner {owner!r} has no column {column!r}, which owner {first!r} has (it has: "
                        f"{', '.join(headers[owner])}); give all the same columns, or list the common ones: "
                        "features = [...]",
                    )
        return columns

    def _check_column(self, key: str, column: str, headers: Mapping[str, Sequence[str]]) -> None:
        """Everyone has the column that this key names."""
        for owner, names in headers.items():
            if column not in names:
                self.fail(
                    "FP-OPTION-388", "", key, f"owner {owner!r} has no column {column!r}; it has: {', '.join(names)}"
                )

    def _headers(self, files: Mapping[str, Path], server: Path | None) -> dict[str, tuple[str, ...]]:
        """The names of the columns of every table that is on this machine, by owner."""
        headers = {owner: self._header(owner, file, "owners", owner) for owner, file in files.items()}
        if server is not None:
            headers[SERVER] = self._header(SERVER, server, "server", "data")
        return headers

    def _header(self, owner: str, file: Path, table: str, key: str) -> tuple[str, ...]:
        try:
            return column_names(file)
        except DataError as error:
            raise self.place(error.within(f"owner {owner!r}"), table, key) from error
