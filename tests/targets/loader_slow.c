// cflags: -O2 -shared -fPIC
// The library of `loader_locked`, whose constructor runs until stdin ends.
void serve(void);
__attribute__((constructor)) static void construct(void) { serve(); }
