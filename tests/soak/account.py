"""Every answer of a soak, and whether the faults at its time explain it."""

from collections import Counter
from dataclasses import dataclass, field

# A recording under which two engines died is given up, and a file under which two decoders did.
_BLAMED_AFTER = 2
_AFTERMATH_SECONDS = 2.0
_RESTART_SECONDS = 120.0  # after a fault there may be no engine for so long on a busy machine
BROKEN = "connection"


@dataclass(frozen=True, slots=True)
class Fault:
    """One that was done to the service, in monotonic seconds."""

    kind: str
    began: float
    ended: float


@dataclass
class Account:
    """The answers of clients, and the wrong ones."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # answers by the kind of client, and what came
    violations: list[str] = field(default_factory=list)  # answers that nothing explains, one line each
    faults: list[Fault] = field(default_factory=list)  # those that were done

    def note(self, client: str, what: str, began: float, *, is_right: bool, detail: str = "") -> None:
        """Count an answer; a wrong one is a violation, unless faults explain it.

        Args:
            client: its kind.
            what: status and code, or that the connection broke.
            began: when the request did.
            is_right: it is what this client should get without faults.
            detail: more about the answer, to look for the cause.
        """
        self.outcomes[client, what] += 1
        if not is_right and not self._is_explained(client, what, began):
            during = [fault.kind for fault in self.faults if fault.ended + _AFTERMATH_SECONDS >= began]
            self.violations.append(f"{client}: {what} {detail[:300]} (faults meanwhile: {', '.join(during) or 'none'})")

    def _is_explained(self, client: str, what: str, began: float) -> bool:
        kinds = [fault.kind for fault in self.faults if fault.ended + _AFTERMATH_SECONDS >= began]
        during = Counter(kinds) + Counter(kind.partition(" ")[0] for kind in kinds)
        match what.rpartition(" ")[2]:  # the code, of an answer or within a stream
            case "engine_lost":
                return during["engine"] >= _BLAMED_AFTER or (client == "second model" and during["engine"] > 0)
            case "deadline_exceeded":  # a service whose engines are lost one after the other
                return during["engine"] >= _BLAMED_AFTER
            case "invalid_audio":
                return during["decoders"] >= _BLAMED_AFTER
            case "decoding_unavailable" | "overloaded":
                return during["descriptors"] > 0
            case "model_load_failed" | "model_not_found" | "model_loading":
                return client == "second model" and any(
                    fault.kind.startswith(("engine", "descriptors")) and fault.ended + _RESTART_SECONDS >= began
                    for fault in self.faults
                )
            case code if code == BROKEN:
                return during["descriptors"] > 0 or during["worker killed"] > 0
        return False

    def report(self) -> str:
        """Return the counts, by client."""
        lines = [f"  {client:>14}  {count:6}  {what}" for (client, what), count in sorted(self.outcomes.items())]
        done = Counter(fault.kind for fault in self.faults)
        return "\n".join(
            ["answers:", *lines, "faults:", *(f"  {count:6}  {kind}" for kind, count in sorted(done.items()))]
        )
