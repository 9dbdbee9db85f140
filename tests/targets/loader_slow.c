// cflags: -O2 -shared -fPIC
// What `loader_locked` opens: a constructor that takes its time.
void serve(void);
__attribute__((constructor)) static void construct(void) { serve(); }
