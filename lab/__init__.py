"""What is beside the service: training, benchmarks, and porting of models."""
