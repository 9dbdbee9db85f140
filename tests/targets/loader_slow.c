// cflags: -O2 -shared -fPIC
// `loader_locked` loads this library, whose constructor runs until stdin ends.
void serve(void);
__attribute__((constructor)) static void construct(void) { serve(); }
