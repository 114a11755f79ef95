"""Plans the crash suite's task: a ledger is written in a batch side by side with a job, then in one of which a person and a hook look at some calls, then by a child run.

A step whose call is known to have failed, by its probe or by a person, is planned again until it is done; one that was denied is not. The summary is wrong until a
check has said so. Nothing is remembered here: everything comes from what a planner is told, so planning may be crashed too.
"""

from checkrein import Pause, Plan, Step
from checkrein.harness.hooks import Hooks
from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, StepRecord
from checkrein.values import JsonObject

FIRST = (
    Step(id="begin", description="Stamp the beginning", tool_name="stamp", arguments={"name": "begin"}),
    Step(
        id="deposit",
        description="Post the deposit",
        tool_name="post_probed",
        arguments={"entry": "deposit"},
        batch="free",
    ),
    Step(
        id="accounts",
        description="Count the accounts",
        tool_name="sql_query",
        arguments={"query": "SELECT count(*) AS accounts FROM accounts"},
        batch="free",
    ),
    Step(
        id="statement",
        description="Print a statement",
        tool_name="print_statement",
        arguments={"entry": "statement"},
        batch="free",
    ),
    Step(id="fee", description="Post the fee", tool_name="post_probed", arguments={"entry": "fee"}, batch="desk"),
    Step(
        id="transfer",
        description="Post the transfer",
        tool_name="post_blind",
        arguments={"entry": "transfer"},
        batch="desk",
    ),
    Step(id="bribe", description="Post a bribe", tool_name="post_blind", arguments={"entry": "bribe"}, batch="desk"),
    Step(id="seal", description="Seal it", tool_name="stamp", arguments={"name": "seal"}, batch="desk"),
)
WRONG = '{"accounts": 3}\n'
RIGHT = '{"accounts": 3, "posted": ["deposit", "transfer", "fee"]}\n'
SECOND = (
    Step(
        id="note.md",
        description="Write the note",
        tool_name="write_file",
        arguments={"path": "note.md", "content": "# Accounts\n\nThere are three.\n"},
    ),
    Step(id="bonus", description="Let a child post the bonus", tool_name="delegate"),
    Step(id="end", description="Stamp the end", tool_name="stamp", arguments={"name": "end"}),
    Step(
        id="summary.json",
        description="Write the summary",
        tool_name="write_file",
        arguments={"path": "summary.json", "content": WRONG},
    ),
)
REPAIR = Step(
    id="summary.json",
    description="Write the summary again",
    tool_name="write_file",
    arguments={"path": "summary.json", "content": RIGHT},
)
CHILD = (
    Step(id="post", description="Post the bonus", tool_name="post_probed", arguments={"entry": "bonus"}),
    Step(id="mark", description="Leave a mark", tool_name="mark"),
)


def plan(_goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None) -> Plan:
    """Return the steps of the current half that are not done, or what a failed check asks for."""
    if last_error is not None and last_error.kind == "check":
        return Plan([REPAIR])
    settled = {item.step.id for item in history if isinstance(item, StepRecord) and _is_settled(item)}
    first = [step for step in FIRST if step.id not in settled]
    return Plan(first, final=False) if first else Plan([step for step in SECOND if step.id not in settled])


def plan_child(_goal: str, history: tuple[StepRecord | Note, ...], _last_error: LastError | None) -> Plan:
    """Return the child's steps that are not done."""
    settled = {item.step.id for item in history if isinstance(item, StepRecord) and _is_settled(item)}
    return Plan([step for step in CHILD if step.id not in settled])


def _is_settled(record: StepRecord) -> bool:
    return record.status == "done" or record.error.startswith("denied")


def policy(tool: str, _arguments: JsonObject) -> Decision:
    """Ask a person about what nobody could take back."""
    return "ask" if tool == "post_blind" else "allow"


def install(hooks: Hooks) -> None:
    """Register the hooks: the seal is looked at before its call, the end before its step."""

    @hooks.on("before_tool_call")
    def look_at_the_seal(payload: dict[str, object]) -> Pause | None:
        return _pause(payload, "seal", "the seal is to be looked at")

    @hooks.on("before_step")
    def look_at_the_end(payload: dict[str, object]) -> Pause | None:
        return _pause(payload, "end", "it is about to end")


def _pause(payload: dict[str, object], step_id: str, reason: str) -> Pause | None:
    step = payload["step"]
    return Pause(reason) if isinstance(step, Step) and step.id == step_id else None
