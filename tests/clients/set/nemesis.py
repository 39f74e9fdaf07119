"""What goes wrong in a set while clients are at work: each fault begins, lasts a while, and ends.

A fault chooses its members when it begins, and ends what it has begun.
"""

import itertools

from pymongo.errors import PyMongoError

from world import SIZE


class Fault:
    def __init__(self, world, rng):
        self.world = world
        self.rng = rng

    def choose(self):
        """A member: mostly the primary."""
        primary = self.world.primary() if self.rng.random() < 0.6 else None
        return primary or self.rng.choice(self.world.members)

    def begin(self):
        """Returns what it does, in words."""
        raise NotImplementedError

    def end(self):
        raise NotImplementedError


class Kill(Fault):
    """kill -9 of a member, or of several at once."""

    def begin(self):
        count = self.rng.choice([1, 1, 1, 1, 2, 3])
        first = self.choose()
        others = [m for m in self.world.members if m is not first]
        self.killed = [m for m in [first, *self.rng.sample(others, count - 1)] if m.is_running()]
        for member in self.killed:
            member.process.kill()
        for member in self.killed:
            member.process.wait()
        return f"kill -9 of {numbers(self.killed)}"

    def end(self):
        for member in self.killed:
            member.spawn()


class Stop(Fault):
    """A member ends in order, as for an upgrade."""

    def begin(self):
        self.member = self.choose()
        if not self.member.is_running():
            self.member = None
            return "stop of a member that is not running"
        self.member.go_on()
        status = self.member.stop()
        assert status == 0, f"member {self.member.number} ended with {status}:\n{self.member.log_end()}"
        return f"stop of {self.member.number}"

    def end(self):
        if self.member:
            self.member.spawn()


class Pause(Fault):
    """A member's process stops, and goes on."""

    def begin(self):
        self.member = self.choose()
        if self.member.is_running():
            self.member.pause()
        return f"pause of {self.member.number}"

    def end(self):
        if self.member.is_running():
            self.member.go_on()


class Cut(Fault):
    """Packets between some members are lost."""

    def pairs(self):
        """The name of the cut, and its pairs of sender and receiver."""
        raise NotImplementedError

    def begin(self):
        name, pairs = self.pairs()
        self.made = [pair for pair in pairs if pair not in self.world.cuts]
        for pair in self.made:
            self.world.cut(*pair)
        return name

    def end(self):
        for pair in self.made:
            self.world.mend(*pair)


class Isolate(Cut):
    """A member has no other one."""

    def pairs(self):
        alone = self.choose().number
        pairs = [(a, b) for a, b in itertools.permutations(range(SIZE), 2) if alone in (a, b)]
        return f"{alone} is alone", pairs


class OneWay(Cut):
    """A member hears others and is not heard by them, or the reverse."""

    def pairs(self):
        one = self.choose().number
        others = [n for n in range(SIZE) if n != one]
        others = self.rng.sample(others, self.rng.choice([1, 2]))
        if self.rng.random() < 0.5:
            return f"{one} is not heard by {others}", [(one, n) for n in others]
        return f"{one} does not hear {others}", [(n, one) for n in others]


class Bridge(Cut):
    """Two members do not have each other, and both have the third."""

    def pairs(self):
        one = self.choose().number
        other = self.rng.choice([n for n in range(SIZE) if n != one])
        return f"none between {one} and {other}", [(one, other), (other, one)]


class NewPrimary(Fault):
    """A primary steps down, or a secondary takes over."""

    def begin(self):
        if self.rng.random() < 0.3:
            member, command = self.rng.choice(self.world.members), {"replSetStepUp": 1}
        else:
            member = self.world.primary() or self.rng.choice(self.world.members)
            seconds, force = self.rng.randint(1, 4), self.rng.random() < 0.3
            command = {"replSetStepDown": seconds, "secondaryCatchUpPeriodSecs": min(1, seconds - 1), "force": force}
        answer = "done"
        try:
            member.client.admin.command(command)
        except PyMongoError as error:
            answer = f"refused ({getattr(error, 'code', None)})"
        return f"{next(iter(command))} of {member.number}, {answer}"

    def end(self):
        pass


FAULTS = [Kill, Kill, Stop, Pause, Isolate, OneWay, Bridge, NewPrimary]


def numbers(members):
    return [member.number for member in members]
