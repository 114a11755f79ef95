"""A model as planner: a tool-calling agent is a session like any other."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from checkrein.errors import ModelError, TransientModelError
from checkrein.harness.asking import PlanningRequest, planned
from checkrein.harness.hooks import SKIP, HookAbort, Pause
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, Plan, PlannerFailed, Step, StepRecord
from checkrein.harness.pulls import SessionResult
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import ToolCallGiven, TurnFinished, TurnStart
from checkrein.messages import AssistantMessage, Text, Thinking, ToolCall, Usage, UserMessage
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta, ToolSchema
from checkrein.ports.tool import CancelSignal
from checkrein.projections.transcript import fold_transcript
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from checkrein.values import JsonObject
from tests.unit.harness.model_scene import GOAL, Scene, add, call, done, pulled


async def test_calls_are_made_and_their_results_answered_until_the_model_only_speaks() -> None:
    scene = Scene(
        [reply("Adding.", call("c1"), call("c2", arguments={"a": 3, "b": 4})), reply(call("c1")), reply("3, 7, 3")]
    )
    out = done(await scene.run())
    assert (out.state, out.reason, out.result) == ("DONE", "goal_met", "3, 7, 3")
    assert scene.results(2) == [("c1", "3", False), ("c2", "7", False), ("c1", "3", False)]
    assert [message.role for message in scene.asked(2)] == [
        *("user", "assistant", "tool_result", "tool_result"),
        *("assistant", "tool_result"),
    ]
    assert (out.budget.used.turns, out.budget.used.tool_calls, out.budget.used.replans) == (3, 3, 0)


async def test_a_request_carries_goal_tools_and_settings() -> None:
    model = ScriptedModel([reply("done")])
    loop = HarnessLoop(planner=ModelPlanner(model, settings={"temperature": 0}), tools=[add])
    await loop.run(GOAL)
    (request,) = model.requests
    assert request.id == "request-001"
    assert tuple(request.messages) == (UserMessage("goal", GOAL),)
    assert request.tools == (ToolSchema(add.name, add.description, add.schema),)
    assert request.settings == JsonObject({"temperature": 0})


async def test_the_calls_of_one_response_run_at_the_same_time() -> None:
    together = asyncio.Barrier(2)

    @tool
    async def meet() -> str:
        await together.wait()
        return "met"

    scene = Scene([reply(call("c1", "meet"), call("c2", "meet")), reply("both")], tools=[meet])
    done(await scene.run())
    assert scene.results(1) == [("c1", "met", False), ("c2", "met", False)]


async def test_a_response_is_one_batch_of_a_plan_that_is_not_final() -> None:
    scene = Scene([reply(call("c1"), call("c2"))], tools=None)
    pull = pulled(await scene.run(), "tool_result")
    assert scene.loop.plan is not None
    assert not scene.loop.plan.final
    assert [(step.id, step.tool_name, step.batch) for step in scene.loop.plan.steps] == [
        ("c1", "add", "turn-1"),
        ("c2", "add", "turn-1"),
    ]
    assert pull.payload["call_id"] == "1.0"


async def test_a_caller_answers_the_calls_of_a_model_one_by_one_in_any_order() -> None:
    scene = Scene([reply(call("c1"), call("c2")), reply("done")], tools=None)
    await scene.run()
    pulled(await scene.resume({"error": "broken", "call_id": "1.1"}), "tool_result")
    done(await scene.resume({"result": {"sum": 3}}))
    assert scene.results(1) == [("c1", '{"sum":3}', False), ("c2", "internal: broken", True)]


async def test_a_model_may_be_offered_other_tools_than_those_of_the_session() -> None:
    model = ScriptedModel([reply("done")])
    search = ToolSchema("search", "finds", JsonObject({"type": "object"}))
    await HarnessLoop(planner=ModelPlanner(model, tools=[search, add])).run(GOAL)
    assert [offered.name for offered in model.requests[0].tools] == ["search", "add"]


async def test_a_call_that_fails_is_an_error_result_and_its_siblings_run() -> None:
    scene = Scene([reply(call("c1", "fail"), call("c2"), call("c3", "nothing")), reply("so be it")])
    out = done(await scene.run())
    assert out.reason == "goal_met"
    first, second, third = scene.results(1)
    assert first == ("c1", "internal: ValueError: no", True)
    assert second == ("c2", "3", False)
    assert third[0] == "c3"
    assert third[1].startswith("not_found: there is no tool 'nothing'")
    assert out.budget.used.replans == 1


async def test_arguments_that_are_no_json_object_are_an_error_result_with_echo_and_schema() -> None:
    broken = ToolCall.parsed("c1", "add", '{"a": 1, "b": ')
    scene = Scene([reply(broken, call("c2")), reply("sorry")])
    out = done(await scene.run())
    first, second = scene.results(1)
    assert first[2]
    assert '{"a": 1, "b": ' in first[1]
    assert add.schema.encoded.decode() in first[1]
    assert second == ("c2", "3", False)
    assert out.budget.used.tool_calls == 1


async def test_malformed_arguments_never_reach_a_caller_who_makes_the_calls_himself() -> None:
    scene = Scene([reply(ToolCall.parsed("c1", "add", "[1]")), reply("sorry")], tools=None)
    assert done(await scene.run()).reason == "goal_met"
    assert scene.results(1) == [("c1", "schema: the arguments of add are no JSON object: [1]", True)]


async def test_a_hook_may_mend_malformed_arguments() -> None:
    scene = Scene([reply(ToolCall.parsed("c1", "add", "a=1, b=2")), reply("thanks")])

    def mend(payload: dict[str, object]) -> None:
        step, made = payload["step"], payload["call"]
        assert isinstance(step, Step)
        assert isinstance(made, dict)
        assert step.malformed == "a=1, b=2"
        made["arguments"] = {"a": 1, "b": 2}

    scene.loop.hooks.on("before_tool_call", mend)
    done(await scene.run())
    assert scene.results(1) == [("c1", "3", False)]


async def test_a_call_that_the_policy_denies_is_an_error_result_and_never_made() -> None:
    def policy(_name: str, arguments: JsonObject) -> Decision:
        return "deny" if arguments["a"] == 1 else "allow"

    scene = Scene([reply(call("c1"), call("c2", arguments={"a": 2, "b": 2})), reply("fine")], policy=policy)
    out = done(await scene.run())
    assert scene.results(1) == [("c1", "denied: the policy denies it", True), ("c2", "4", False)]
    assert out.budget.used.tool_calls == 1


async def test_the_approvals_of_a_batch_are_open_together_and_nothing_runs_before_the_last_is_answered() -> None:
    made: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        made.append(amount)
        return "paid"

    def policy(_name: str, arguments: JsonObject) -> Decision:
        return "allow" if arguments["amount"] == 1 else "ask"

    calls = [call(f"c{amount}", "pay", {"amount": amount}) for amount in (1, 2, 3)]
    scene = Scene([reply(*calls), reply("two paid")], tools=[pay], policy=policy)
    pulled(await scene.run(), "review:permission")
    pulled(await scene.resume({"decision": {"deny": "too much"}, "call_id": "1.2"}), "review:permission")
    assert made == []
    done(await scene.resume({"decision": "allow"}))
    assert sorted(made) == [1, 2]
    assert scene.results(1) == [("c1", "paid", False), ("c2", "paid", False), ("c3", "denied: too much", True)]


async def test_the_model_sees_what_hooks_made_of_a_result_and_calls_are_made_with_what_they_made_of_arguments() -> None:
    scene = Scene([reply(call("c1")), reply("done")])

    def double(payload: dict[str, object]) -> None:
        made = payload["call"]
        assert isinstance(made, dict)
        made["arguments"] = {"a": 10, "b": 20}

    def redact(payload: dict[str, object]) -> None:
        assert payload["result"] == 30
        payload["result"] = "a number"

    scene.loop.hooks.on("before_tool_call", double)
    scene.loop.hooks.on("after_tool_call", redact)
    done(await scene.run())
    assert scene.results(1) == [("c1", "a number", False)]
    assert scene.asked(1)[1] == AssistantMessage("scripted-message-000001", (call("c1"),))


async def test_a_call_that_a_hook_refuses_or_leaves_out_has_a_result_that_says_so() -> None:
    scene = Scene([reply(call("c1"), call("c2"), call("c3")), reply("done")])

    def guard(payload: dict[str, object]) -> object:
        step = payload["step"]
        assert isinstance(step, Step)
        if step.id == "c1":
            raise HookAbort("not today")
        return SKIP if step.id == "c2" else None

    scene.loop.hooks.on("before_tool_call", guard)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  answers as hooks may
    done(await scene.run())
    assert scene.results(1) == [
        ("c1", "denied: not today", True),
        ("c2", "skipped, not done", True),
        ("c3", "3", False),
    ]


async def test_a_plan_that_a_hook_drops_is_answered_call_by_call_and_the_model_is_told_why() -> None:
    scene = Scene([reply(call("c1"), call("c2")), reply("then not")])
    dropped: list[object] = []

    def refuse(payload: dict[str, object]) -> None:
        if not dropped:
            dropped.append(payload["steps"])
            raise HookAbort("too dear")

    scene.loop.hooks.on("after_plan", refuse)
    done(await scene.run())
    text = "the plan was not accepted, and nothing of it was done: too dear"
    assert scene.results(1) == [("c1", f"not started: {text}", True), ("c2", f"not started: {text}", True)]
    assert scene.said(1) == [GOAL, text]


async def test_a_hook_may_take_a_call_out_of_the_plan_and_put_a_step_in() -> None:
    scene = Scene([reply(call("c1"), call("c2")), reply("done")])

    def change(payload: dict[str, object]) -> None:
        steps = cast("list[Step]", payload["steps"])
        if steps[0].id == "c1":
            payload["steps"] = [
                steps[1],
                Step(id="audit", description="look", tool_name="add", arguments={"a": 0, "b": 0}),
            ]

    scene.loop.hooks.on("after_plan", change)
    done(await scene.run())
    assert scene.results(1) == [("c1", "not started: it was taken out of the plan", True), ("c2", "3", False)]
    assert scene.said(1) == [GOAL, 'step audit (look), add with {"a":0,"b":0}, is done: 0']


async def test_a_hook_may_send_an_answer_back() -> None:
    scene = Scene([reply("42"), reply("forty-two")])

    def in_words(payload: dict[str, object]) -> None:
        step = payload["step"]
        assert isinstance(step, Step)
        if step.answer.isdigit():
            raise HookAbort("say it in words")

    scene.loop.hooks.on("before_step", in_words)
    assert done(await scene.run()).result == "forty-two"
    assert scene.said(1) == [GOAL, "step answer-1 (answer) failed: say it in words"]


async def test_a_message_sent_while_calls_run_follows_their_results() -> None:
    scene = Scene([reply(call("c1"), call("c2")), reply("in euro: 3")], tools=None)
    await scene.run()
    scene.loop.steer("in euro")
    await scene.resume({"result": 3, "call_id": "1.0"})
    scene.loop.steer("and be short")
    done(await scene.resume({"result": 3}))
    assert [message.role for message in scene.asked(1)] == [
        *("user", "assistant", "tool_result", "tool_result"),
        "user",
        "user",
    ]
    assert scene.said(1) == [GOAL, "in euro", "and be short"]


async def test_a_follow_up_is_answered_before_the_goal_counts_as_met() -> None:
    scene = Scene([reply(call("c1")), reply("three"), reply("drei")], tools=None)
    await scene.run()
    scene.loop.follow_up("and in German")
    assert done(await scene.resume({"result": 3})).result == "drei"
    assert [message.role for message in scene.asked(2)] == ["user", "assistant", "tool_result", "assistant", "user"]


async def test_tokens_are_counted_and_no_turn_starts_when_they_are_used_up() -> None:
    used = Usage(input_tokens=60, output_tokens=50, cost=0.5)
    scene = Scene([reply(call("c1"), usage=used), reply("done", usage=used)], budget=Budget(tokens=100, cost=5.0))
    pull = pulled(await scene.run(), "budget_exceeded:tokens")
    assert scene.model.call_count == 1
    assert scene.loop.budget.used.tokens == 110
    assert scene.loop.budget.used.cost == 0.5
    assert scene.loop.session.history[-1].result.value == 3  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  the last turn was finished
    assert await scene.resume({"extend": {"tokens": 10}}) == pull
    out = done(await scene.resume({"extend": {"tokens": 100}}))
    assert out.budget.used.tokens == 220


async def test_a_cost_that_is_used_up_pauses_and_one_response_may_cross_the_limit() -> None:
    scene = Scene([reply(call("c1"), usage=Usage(cost=3.0)), reply("x")], budget=Budget(cost=1.0))
    pulled(await scene.run(), "budget_exceeded:cost")
    assert scene.loop.budget.used.cost == 3.0


async def test_turns_are_counted_before_the_model_is_asked() -> None:
    scene = Scene([reply(call("c1")), reply(call("c1"))], budget=Budget(turns=2))
    pulled(await scene.run(), "budget_exceeded:turns")
    assert scene.model.call_count == 2


async def test_a_model_that_says_nothing_is_asked_three_times_and_then_the_planner_failed() -> None:
    scene = Scene([reply(), reply(), reply(), reply("at last")])
    pull = pulled(await scene.run(), "planner_failed")
    assert pull.payload["message"] == "MODEL_EMPTY: the model said nothing"
    assert scene.loop.budget.used.turns == 3
    assert done(await scene.resume({"decision": "again"})).result == "at last"
    assert scene.said(3) == [GOAL, "the last planning failed: MODEL_EMPTY: the model said nothing"]


async def test_a_response_that_was_cut_off_runs_nothing_and_is_not_asked_again_by_itself() -> None:
    scene = Scene([reply(call("c1"), stop_reason="length"), reply("shorter")])
    pull = pulled(await scene.run(), "planner_failed")
    assert str(pull.payload["message"]).startswith("MODEL_OUTPUT_LIMIT: ")
    assert not any(isinstance(event.data, ToolCallGiven) for event in scene.loop.events)
    assert scene.loop.plan is None
    done(await scene.resume({"decision": None}))
    assert [message.role for message in scene.asked(1)] == ["user", "user"]


async def test_a_failure_that_may_pass_is_retried_as_attempts_of_one_turn_each_counted() -> None:
    broken = ConnectionError("reset")
    scene = Scene([TransientModelError("busy"), broken, reply("done")])
    out = done(await scene.run())
    starts = [(event.data.turn, event.data.attempt) for event in scene.loop.events if isinstance(event.data, TurnStart)]
    assert starts == [(1, 1), (1, 2), (1, 3)]
    assert out.budget.used.turns == 3
    assert {request.id for request in scene.model.requests} == {"request-001"}
    assert scene.clock.monotonic() > 0
    assert scene.said(2) == [GOAL]


async def test_a_planning_is_retried_no_sooner_than_the_provider_asked_and_not_at_all_if_that_is_too_late() -> None:
    scene = Scene([TransientModelError("busy", retry_after=120.0), reply("done")], budget=Budget(wall_seconds=500))
    done(await scene.run())
    assert scene.clock.monotonic() >= 120.0
    closed = Scene([TransientModelError("closed", code="MODEL_RATE_LIMIT", retry_after=4_000.0), reply("never")])
    pull = pulled(await closed.run(), "planner_failed")
    assert pull.payload["message"] == "MODEL_RATE_LIMIT: closed"
    assert closed.model.call_count == 1


async def test_hooks_before_a_planning_are_called_once_for_all_its_attempts() -> None:
    scene = Scene([TransientModelError("busy"), reply("done")])
    seen: list[object] = []
    scene.loop.hooks.on("before_plan", lambda payload: seen.append(payload["turn"]))
    scene.loop.hooks.on("on_error", lambda payload: seen.append(payload["error"]))
    done(await scene.run())
    assert seen == [1]


async def test_a_failure_that_does_not_pass_is_not_retried() -> None:
    scene = Scene([ModelError("no such model"), reply("never")])
    pull = pulled(await scene.run(), "planner_failed")
    assert pull.payload["message"] == "MODEL_STREAM_FAILED: no such model"
    assert scene.model.call_count == 1


async def test_no_attempt_is_made_that_the_budget_does_not_allow() -> None:
    scene = Scene([TransientModelError("busy"), TransientModelError("busy"), reply("done")], budget=Budget(turns=2))
    pulled(await scene.run(), "planner_failed")
    assert scene.model.call_count == 2
    pulled(await scene.resume({"decision": "again"}), "budget_exceeded:turns")
    done(await scene.resume({"extend": {"turns": 1}}))


async def test_what_failed_attempts_consumed_is_charged_with_the_answer() -> None:
    scene = Scene([reply(usage=Usage(5, 5, cost=0.25)), reply("done", usage=Usage(1, 1))])
    out = done(await scene.run())
    assert (out.budget.used.tokens, out.budget.used.cost) == (12, 0.25)


async def test_what_failed_attempts_consumed_is_charged_with_the_failure_and_stops_further_ones() -> None:
    scene = Scene([reply(usage=Usage(50, 0)), reply(usage=Usage(50, 0)), reply("never")], budget=Budget(tokens=100))
    pulled(await scene.run(), "planner_failed")
    assert scene.loop.budget.used.tokens == 100
    finished = [event.data for event in scene.loop.events if isinstance(event.data, TurnFinished)]
    assert [(data.turn, data.attempt, data.usage) for data in finished] == [(1, 2, Usage(100, 0))]


async def test_time_that_runs_out_while_waiting_ends_the_attempts() -> None:
    scene = Scene([TransientModelError("busy"), reply("never")], budget=Budget(wall_seconds=0.01))
    pulled(await scene.run(), "planner_failed")
    assert scene.model.call_count == 1


async def test_a_function_whose_model_is_busy_is_asked_again_too() -> None:
    scene = Scene([])
    asked: list[LastError | None] = []

    def plan(_goal: str, _history: object, last_error: LastError | None) -> list[Step]:
        asked.append(last_error)
        if len(asked) < 3:
            raise TransientModelError("busy")
        return [Step(id="a", description="tell", answer="told")]

    scene.loop.planner = plan
    assert done(await scene.run()).result == "told"
    assert asked == [None, None, None]


async def test_two_calls_with_one_id_are_the_planners_failure_and_nothing_runs() -> None:
    scene = Scene([reply(call("c1"), call("c1"), usage=Usage(7, 0))])
    pull = pulled(await scene.run(), "planner_failed")
    assert pull.payload["message"] == "what the model said cannot stand in a transcript: duplicate_call_id c1"
    assert "tool.call" not in scene.types()
    assert scene.loop.budget.used.tokens == 7


async def test_a_stream_that_disagrees_with_its_response_is_the_planners_failure() -> None:
    async def lying(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        yield TextDelta(request_id=request.id, delta="yes")
        yield reply("no")

    scene = Scene([lying])
    pull = pulled(await scene.run(), "planner_failed")
    assert str(pull.payload["message"]).startswith("MODEL_PROTOCOL_ERROR: ")


async def test_a_stream_that_is_left_early_is_closed() -> None:
    closed = asyncio.Event()

    async def strange(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        try:
            yield TextDelta(request_id="of another", delta="yes")
            yield reply("no")
        finally:
            closed.set()

    class Bare:
        def stream(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
            return strange(request, signal)

    loop = HarnessLoop(planner=ModelPlanner(Bare()))
    pulled(await loop.run(GOAL), "planner_failed")
    await asyncio.wait_for(closed.wait(), 5)


async def test_a_model_that_is_none_is_the_planners_failure() -> None:
    scene = Scene([])
    scene.loop.planner = ModelPlanner(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  that is what is tried
    pull = pulled(await scene.run(), "planner_failed")
    assert "has no attribute 'stream'" in str(pull.payload["message"])


async def test_a_session_that_was_cancelled_while_the_model_spoke_asks_again_as_another_attempt() -> None:
    entered = asyncio.Event()

    async def endless(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        entered.set()
        await asyncio.Event().wait()
        yield reply("never")

    scene = Scene([endless, reply("done")])
    task = scene.clock.spawn(scene.loop.run(GOAL), name="driving")
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scene.types() == ["session.start", "turn.start"]
    assert done(await scene.within(scene.loop.continue_())).result == "done"
    assert scene.loop.budget.used.turns == 2


async def test_a_request_that_is_not_wanted_any_more_ends_cancelled() -> None:
    signal = CancelSignal()

    async def told(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        signal.cancel("enough")
        yield TextDelta(request_id=request.id, delta="yes")
        yield reply("yes")

    model = ScriptedModel([told])
    state = HarnessLoop(planner=lambda _goal, _history, _error: []).session

    async def transcript() -> tuple[UserMessage, ...]:
        return (UserMessage("u", "x"),)

    request = PlanningRequest(1, state, transcript, tuple, signal)
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await planned(ModelPlanner(model), request)


async def test_chunks_are_told_with_their_attempt_and_who_looks_on_changes_nothing() -> None:
    seen: list[tuple[str, int]] = []

    def look(chunk: Chunk, attempt: int) -> None:
        seen.append((chunk.type, attempt))
        raise RuntimeError("broken screen")

    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    scene = Scene([reply(Thinking("hm")), reply(Thinking("hm"), "done")])
    scene.loop.planner = ModelPlanner(scene.model, on_chunk=look)
    assert done(await scene.run()).result == "done"
    assert seen == [("thinking_delta", 1), ("thinking_delta", 2), ("text_delta", 2)]
    assert len(reported) == 3


async def test_planners_of_both_kinds_take_turns_in_one_session() -> None:
    scene = Scene([reply(call("c1")), reply("all is added")])
    model_planner = scene.loop.planner
    histories: list[tuple[object, ...]] = []

    def first(_goal: str, _history: object, _last_error: object) -> Plan:
        scene.loop.planner = model_planner
        return Plan([Step(id="c1", description="begin", tool_name="add", arguments={"a": 5, "b": 5})], final=False)

    def second(_goal: str, history: tuple[StepRecord | Note, ...], _last_error: object) -> Plan:
        histories.append(history)
        scene.loop.planner = model_planner
        return Plan([Step(id="c1", description="more", tool_name="fail")], final=False)

    scene.loop.planner = first
    scene.loop.hooks.on(
        "after_step",
        lambda _payload: (
            setattr(scene.loop, "planner", second) if scene.model.call_count == 1 and not histories else None
        ),
    )
    assert done(await scene.run()).result == "all is added"
    assert scene.said(0) == [GOAL, 'step c1 (begin), add with {"a":5,"b":5}, is done: 10']
    assert [item.result for item in histories[0] if isinstance(item, StepRecord)] == [10, 3]
    assert scene.results(1) == [("c1", "3", False)]
    assert scene.said(1)[2:] == ["step c1 (more), fail with {}, failed: internal: ValueError: no"]


async def test_a_log_gives_the_same_transcript_and_state_without_asking_the_model() -> None:
    scene = Scene([reply(call("c1"), call("c2", "fail")), reply("done")])
    done(await scene.run())
    events = tuple(scene.loop.events)
    copy = HarnessLoop.replay(events)
    assert copy.session == scene.loop.session
    assert fold_transcript(events).messages[:-1] == scene.asked(1)
    assert fold_transcript(events).messages[-1] == AssistantMessage("scripted-message-000002", (Text("done"),))
    assert scene.model.call_count == 2


async def test_a_session_goes_on_from_any_prefix_of_its_log() -> None:
    scene = Scene([reply(call("c1"), call("c2", "fail")), reply("done")])
    done(await scene.run())
    events = tuple(scene.loop.events)
    for end in range(1, len(events)):
        again = Scene([reply(call("c7")), reply("again"), reply("again")])
        again.loop = HarnessLoop.replay(events[:end], ModelPlanner(again.model), tools=[add])
        out = await again.loop.continue_()
        while not isinstance(out, SessionResult):
            # A call that was given away when the log ends may have been made: whoever knows says so.
            out = await again.resume({"error": "lost", "call_id": out.payload["call_id"]})
        assert out.reason == "goal_met", end
        for number in range(again.model.call_count):
            again.asked(number)


async def test_a_review_before_planning_holds_the_turn_and_the_model_is_asked_after_it() -> None:
    scene = Scene([reply("done")])
    scene.loop.hooks.on("before_plan", lambda _payload: Pause("look"))
    pulled(await scene.run(), "review:look")
    assert scene.model.call_count == 0
    done(await scene.resume({"decision": "go on"}))
    assert scene.loop.budget.used.turns == 1


async def test_only_a_step_without_tool_brings_its_own_answer() -> None:
    scene = Scene([])
    scene.loop.planner = lambda _goal, _history, _error: [Step(id="a", description="", tool_name="add", answer="3")]
    pull = pulled(await scene.run(), "planner_failed")
    assert "only a step without tool brings its own answer" in str(pull.payload["message"])


async def test_what_is_no_draft_is_the_planners_failure() -> None:
    class Odd:
        async def draft(self, request: PlanningRequest) -> str:
            return request.goal

    loop = HarnessLoop(planner=Odd())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  that is what is tried
    pull = pulled(await loop.run(GOAL), "planner_failed")
    assert pull.payload["message"] == "it returned str instead of what it drafted"


async def test_a_failure_says_whether_it_may_pass() -> None:
    failure = PlannerFailed("busy", is_transient=True, usage=Usage(1, 2))
    assert (failure.reason, failure.is_transient, failure.usage.total_tokens) == ("busy", True, 3)
    assert str(failure) == "the planner failed: busy"
