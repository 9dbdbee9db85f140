// cflags: -O2 -shared -fPIC
// Loaded by `loader_locked`: its constructor runs until stdin ends.
void serve(void);
__attribute__((constructor)) static void construct(void) { serve(); }
