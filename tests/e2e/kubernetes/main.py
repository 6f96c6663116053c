"""Runs the tests that are named, or all, and prints what they measured."""
import sys
import unittest

from harness import report

# The quick ones first.
MODULES = ["test_objects", "test_gpu", "test_operator", "test_results", "test_tls",
           "test_policies", "test_learning", "test_upgrade", "test_faults"]


class Result(unittest.TextTestResult):
    """Says at once why a test failed: the next ones take minutes."""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])


def main():
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:] or MODULES)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result).run(suite)
    print("\nmeasured:\n" + report.summary(), flush=True)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
