"""Run by test_parallel as a user's script would be: no ``if __name__ == "__main__"``."""

from vfsl.parallel import spread

print("started")
print(list(spread(abs, [-1, 2, -3], workers=2)))
