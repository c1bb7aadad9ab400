from reprolab.capture import resources
from reprolab.capture.resources import Resources


def test_a_sample_has_what_the_process_used(monkeypatch):
    sampler = Resources()
    first = sampler.sample()
    assert {"cpu_user", "cpu_system", "rss", "threads"} <= first.keys()
    assert first["rss"] > 1 << 20
    assert sampler.sample() is None
    monkeypatch.setattr(resources, "_SECONDS", 0.0)
    held = bytearray(64 << 20)
    second = sampler.sample()
    assert second["rss"] >= first["rss"] + len(held) // 2
    assert second["cpu_user"] >= first["cpu_user"]
