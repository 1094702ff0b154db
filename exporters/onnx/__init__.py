"""ONNX. Importing anything here without its packages raises an ``ImportError`` that says what to install."""

from exporters.packages import require

require("onnx", "OnnxExporter")
