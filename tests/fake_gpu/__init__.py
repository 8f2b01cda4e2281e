# the environment variable that says where the library of tests/test_fake_gpu.py is
LIBRARY = "CAPGRADE_FAKE_GPU"
