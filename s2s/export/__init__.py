"""Export of trained models to ONNX, CTranslate2 and the Hugging Face hub."""
