import jax

# Models are tiny here: compiling takes the time, not running.
jax.config.update("jax_disable_most_optimizations", True)
