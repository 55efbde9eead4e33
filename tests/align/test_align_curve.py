"""Hash-to-curve against the vectors that RFC 9380 prints."""

from vfsl.align import curve


def test_expand_message_of_the_rfc(vectors):
    data = vectors("rfc9380_expand_sha512")
    for vector in data["vectors"]:
        uniform = curve.expand_message_xmd(
            vector["msg"].encode(), data["dst"].encode(), vector["length"]
        )
        assert uniform.hex() == vector["uniform_bytes"]


def test_hash_to_curve_of_the_rfc(vectors):
    data = vectors("rfc9380_curve25519")
    for vector in data["vectors"]:
        message, dst = vector["msg"].encode(), data["dst"].encode()
        numbers = {name: int(value, 16) for name, value in vector.items() if name != "msg"}
        first, second = curve.hash_to_field(message, dst)
        assert (first, second) == (numbers["u[0]"], numbers["u[1]"])
        q0, q1 = curve.map_to_curve(first), curve.map_to_curve(second)
        assert q0 == (numbers["Q0.x"], numbers["Q0.y"])
        assert q1 == (numbers["Q1.x"], numbers["Q1.y"])
        total = curve.add(q0, q1)
        point = curve.hash_to_point(message, dst)
        assert int.from_bytes(point, "little") == total[0]
        assert curve.fault_of(point) is None
        cleared = total
        for _ in range(3):
            cleared = curve.add(cleared, cleared)
        assert cleared == (numbers["P.x"], numbers["P.y"])


def test_points_off_the_curve_and_out_of_form_are_told():
    on_curve = sum(curve.fault_of(x.to_bytes(32, "little")) is None for x in range(2, 402))
    assert 150 < on_curve < 250  # half of all x belong to the curve, half to its twist
    assert curve.fault_of((9).to_bytes(32, "little")) is None
    assert curve.fault_of((2).to_bytes(32, "little")) == "is not on the curve"
    for x in (2**255 - 19, 2**255 - 10, 2**256 - 1):
        assert curve.fault_of(x.to_bytes(32, "little")) == "is not in canonical form"
