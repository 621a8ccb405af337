"""The Python tests, the fuzzer and the tests of other libraries; tests/cpp are the C++ tests."""
