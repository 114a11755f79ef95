"""Settings of an agent: those of its loop, and how its queues are emptied."""

from checkrein.agent.inbox import QueueMode
from checkrein.loop.options import LoopOptions, check_choice

__all__ = ["AgentOptions"]


class AgentOptions(LoopOptions, frozen=True, kw_only=True):
    """Settings of an agent.

    Attributes:
        steering_mode: whether one boundary accepts one steering message or all that wait.
        follow_up_mode: the same for follow-ups.
    """

    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"

    def __post_init__(self) -> None:
        """Refuse values that make no sense.

        Raises:
            ValueError: naming the option.
        """
        LoopOptions.__post_init__(self)
        check_choice("steering_mode", self.steering_mode, ("one-at-a-time", "all"))
        check_choice("follow_up_mode", self.follow_up_mode, ("one-at-a-time", "all"))
