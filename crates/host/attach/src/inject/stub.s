# The stub. stub.rs has its rules; braces name offsets in Params and Mailbox.
.pushsection .rodata.tiptoe_stub, "a", @progbits
.balign 16
.globl tiptoe_stub_begin
.hidden tiptoe_stub_begin
.globl tiptoe_stub_from_home
.hidden tiptoe_stub_from_home
.globl tiptoe_stub_end
.hidden tiptoe_stub_end

tiptoe_stub_begin:
tiptoe_image:
    .skip {params}

# In the cave there is no stack, and every register is free (the program's are in Params).
tiptoe_from_cave:
    cld
    mov eax, 14                         # rt_sigprocmask(SIG_BLOCK, all, NULL, 8)
    xor edi, edi
    lea rsi, [rip + tiptoe_image + {all_signals}]
    xor edx, edx
    mov r10d, 8
    syscall
    mov eax, 9                          # mmap(home, 2 pages, RW, PRIVATE|ANONYMOUS|FIXED_NOREPLACE)
    mov rdi, qword ptr [rip + tiptoe_image + {home}]
    mov esi, 8192
    mov edx, 3
    mov r10d, 0x100022
    mov r8, -1
    xor r9d, r9d
    syscall
    cmp rax, qword ptr [rip + tiptoe_image + {home}]
    jne tiptoe_no_home
    mov rdi, rax
    lea rsi, [rip + tiptoe_image]
    lea rcx, [rip + tiptoe_stub_end]
    sub rcx, rsi
    rep movsb
    mov eax, 10                         # mprotect(home, 1 page, RX)
    mov rdi, qword ptr [rip + tiptoe_image + {home}]
    mov esi, 4096
    mov edx, 5
    syscall
    test eax, eax
    jnz tiptoe_no_exec
    lea rax, [rip + tiptoe_stub_from_home]   # the same address in the copy at home
    lea rcx, [rip + tiptoe_image]
    sub rax, rcx
    add rax, qword ptr [rip + tiptoe_image + {home}]
    jmp rax
tiptoe_no_exec:
    mov eax, 11                         # munmap(home, 2 pages)
    mov rdi, qword ptr [rip + tiptoe_image + {home}]
    mov esi, 8192
    syscall
tiptoe_no_home:
    mov ebx, 2
    jmp tiptoe_leave

# At home. rbx: the mailbox; rbp: the temporary mapping.
tiptoe_stub_from_home:
    cld
    lea rbx, [rip + tiptoe_image + 4096]
    mov eax, 14                         # again, because a later injection starts here
    xor edi, edi
    lea rsi, [rip + tiptoe_image + {all_signals}]
    xor edx, edx
    mov r10d, 8
    syscall
    mov rdi, qword ptr [rip + tiptoe_image + {cave_page}]
    test rdi, rdi
    jz 2f
    mov eax, 28                         # madvise(cave, 1 page, DONTNEED): restores the file's bytes
    mov esi, 4096
    mov edx, 4
    syscall
    test eax, eax
    jz 21f
    mov eax, 28                         # the same with DONTNEED_LOCKED, for a locked page
    mov edx, 24
    syscall
21: mov dword ptr [rbx + {cave_result}], eax
2:  mov eax, 9                          # mmap(NULL, scratch, RW, PRIVATE|ANONYMOUS)
    xor edi, edi
    mov rsi, qword ptr [rip + tiptoe_image + {scratch}]
    mov edx, 3
    mov r10d, 0x22
    mov r8, -1
    xor r9d, r9d
    syscall
    cmp rax, -4096
    ja tiptoe_no_scratch
    mov rbp, rax
    mov rsp, rax
    add rsp, qword ptr [rip + tiptoe_image + {scratch}]
    mov eax, -1
    mov edx, -1
    xsave64 [rbp]
    mov dword ptr [rbx + {state}], 1    # ARRIVED
    mov r12d, 1
    call tiptoe_wait
    test eax, eax
    jz 3f
    mov dword ptr [rbx + {state}], 5    # ABANDONED
    jmp 4f
3:  call tiptoe_work
4:  mov eax, -1
    mov edx, -1
    xrstor64 [rbp]
    mov eax, 11                         # munmap(scratch)
    mov rdi, rbp
    mov rsi, qword ptr [rip + tiptoe_image + {scratch}]
    syscall
    jmp tiptoe_decide
tiptoe_no_scratch:
    mov dword ptr [rbx + {fds} + 12], eax
    mov dword ptr [rbx + {state}], 7    # FAILED

# Decides whether a handler is due for a signal that arrived in between, and would end the program's call.
tiptoe_decide:
    cmp qword ptr [rip + tiptoe_image + {restart}], 0
    je 3f
    mov eax, 127                        # rt_sigpending
    lea rdi, [rbx + {work}]
    mov esi, 8
    syscall
    mov r12, qword ptr [rip + tiptoe_image + {mask}]
    not r12
    and r12, qword ptr [rbx + {work}]
21: bsf r13, r12
    jz 3f
    btr r12, r13
    mov eax, 13                         # rt_sigaction(signal, NULL, &action, 8)
    lea edi, [r13 + 1]
    xor esi, esi
    lea rdx, [rbx + {work} + 8]
    mov r10d, 8
    syscall
    cmp qword ptr [rbx + {work} + 8], 1 # SIG_DFL or SIG_IGN: no handler
    jbe 21b
    cmp qword ptr [rip + tiptoe_image + {restart}], 1
    jne 2f
    test dword ptr [rbx + {work} + 16], 0x10000000  # SA_RESTART
    jnz 21b
2:  mov ebx, 1
    jmp tiptoe_leave
3:  xor ebx, ebx

# Returns to the program. rbx: 0 with the saved registers, 1 with EINTR, 2 as with 0 but from the
# cave. After popfq no instruction may change the flags.
tiptoe_leave:
    cmp ebx, 2
    je 21f
    mov dword ptr [rip + tiptoe_image + 4096 + {left}], {returning}
21: lea rsp, [rip + tiptoe_image + {registers} + 128]
    popfq
    mov rsp, qword ptr [rip + tiptoe_image + {registers} + 56]
    mov eax, 14                         # rt_sigprocmask(SIG_SETMASK, mask, NULL, 8)
    mov edi, 2
    lea rsi, [rip + tiptoe_image + {mask}]
    mov edx, 0
    mov r10d, 8
    syscall
    mov rdx, qword ptr [rip + tiptoe_image + {registers} + 24]
    mov rsi, qword ptr [rip + tiptoe_image + {registers} + 32]
    mov rdi, qword ptr [rip + tiptoe_image + {registers} + 40]
    mov rbp, qword ptr [rip + tiptoe_image + {registers} + 48]
    mov r8, qword ptr [rip + tiptoe_image + {registers} + 64]
    mov r9, qword ptr [rip + tiptoe_image + {registers} + 72]
    mov r10, qword ptr [rip + tiptoe_image + {registers} + 80]
    mov r11, qword ptr [rip + tiptoe_image + {registers} + 88]
    mov r12, qword ptr [rip + tiptoe_image + {registers} + 96]
    mov r13, qword ptr [rip + tiptoe_image + {registers} + 104]
    mov r14, qword ptr [rip + tiptoe_image + {registers} + 112]
    mov r15, qword ptr [rip + tiptoe_image + {registers} + 120]
    mov rax, qword ptr [rip + tiptoe_image + {registers}]
    mov rcx, rbx
    mov rbx, qword ptr [rip + tiptoe_image + {registers} + 8]
    jrcxz 21f
    lea rcx, [rcx - 1]
    jrcxz 2f
    mov rcx, qword ptr [rip + tiptoe_image + {registers} + 16]
    jmp qword ptr [rip + tiptoe_image + {registers} + 136]
21: mov rcx, qword ptr [rip + tiptoe_image + {registers} + 16]
    mov dword ptr [rip + tiptoe_image + 4096 + {left}], {returned}
    jmp qword ptr [rip + tiptoe_image + {registers} + 136]
2:  mov rcx, qword ptr [rip + tiptoe_image + {registers} + 16]
    mov rax, -4
    mov dword ptr [rip + tiptoe_image + 4096 + {left}], {returned}
    jmp qword ptr [rip + tiptoe_image + {interrupted_rip}]

# Waits for step r12d. Returns in eax 0 if the step may be taken, 1 if tiptoe gave up or its heartbeat
# stopped for a lease. Polls at first without a system call, because tiptoe is usually faster than a nap.
tiptoe_wait:
    mov ecx, {looks}
21: cmp dword ptr [rbx + {go}], r12d
    jae 22f
    pause
    dec ecx
    jnz 21b
22: mov r13d, dword ptr [rbx + {heartbeat}]
    mov r14, qword ptr [rip + tiptoe_image + {lease}]
21: cmp dword ptr [rbx + {abandon}], 0
    jne 3f
    cmp dword ptr [rbx + {go}], r12d
    jae 2f
    push 1000                           # ppoll(NULL, 0, 1 us, NULL): the kernel's slack is 50 us
    push 0
    mov eax, 271
    xor edi, edi
    xor esi, esi
    mov rdx, rsp
    xor r10d, r10d
    syscall
    add rsp, 16
    cmp r13d, dword ptr [rbx + {heartbeat}]
    jne 22b
    dec r14
    jnz 21b
3:  mov eax, 1
    ret
2:  xor eax, eax
    ret

# Makes the memfds, loads the agent and calls its entry. Keeps rbx and rbp. At the call, rsp is 8
# bytes past a 16-byte boundary.
tiptoe_work:
    sub rsp, 8
    lea rdi, [rip + 7f]
    mov r12, -3
    mov qword ptr [rbx + {fds}], -1
    mov qword ptr [rbx + {fds} + 8], -1
21: mov eax, 319                        # memfd_create(name, CLOEXEC|ALLOW_SEALING)
    mov esi, 3
    syscall
    mov dword ptr [rbx + {fds} + 12 + 4 * r12], eax
    test eax, eax
    js 6f
    add rdi, 16
    inc r12
    jnz 21b
    mov dword ptr [rbx + {state}], 2    # OFFERED
    mov r12d, 2
    call tiptoe_wait
    test eax, eax
    jz 2f
    mov dword ptr [rbx + {state}], 5    # ABANDONED
    jmp 9f
2:  mov dword ptr [rbx + {state}], 3    # ENTERED
    mov rax, qword ptr [rbx + {entry}]
    test rax, rax
    jnz 3f
    call qword ptr [rbx + {errno_location}]
    mov r12, rax
    mov r13d, dword ptr [rax]
    lea rdi, [rbx + {path}]
    mov esi, dword ptr [rbx + {mode}]
    call qword ptr [rbx + {dlopen}]
    mov dword ptr [r12], r13d
    mov ecx, 6                          # REFUSED
    test rax, rax
    jz 8f
    mov r8, qword ptr [rax + 8]         # replaces the link map's name if it is `path`,
    mov rdi, r8                         # which is longer than the 30 bytes of tiptoe_name
    lea rsi, [rbx + {path}]
    mov ecx, 30
    repe cmpsb
    jne 22f
    mov rdi, r8
    lea rsi, [rip + tiptoe_name]
    mov ecx, 30
    rep movsb
22: mov rax, qword ptr [rax]            # the link map's first word: the load base
    mov qword ptr [rbx + {base}], rax
    add rax, qword ptr [rbx + {entry_offset}]
3:  mov edi, dword ptr [rbx + {fds} + 4]
    mov esi, dword ptr [rbx + {fds} + 8]
    call rax
    mov qword ptr [rbx + {result}], rax
    mov ecx, 4                          # DONE
    jmp 8f
6:  mov dword ptr [rbx + {fds} + 12], eax
    mov ecx, 7                          # FAILED
8:  mov dword ptr [rbx + {state}], ecx
9:  mov r12, -3
4:  mov edi, dword ptr [rbx + {fds} + 12 + 4 * r12]
    test edi, edi
    js 5f
    mov eax, 3                          # close
    syscall
5:  inc r12
    jnz 4b
    add rsp, 8
    ret
    .balign 16
7:  .asciz "tiptoe-agent"               # one name every 16 bytes
    .balign 16
    .asciz "tiptoe-data"
    .balign 16
    .asciz "tiptoe-plan"
tiptoe_name:                            # the name in maps, under which a debugger finds no file
    .asciz "/memfd:tiptoe-agent (deleted)"
tiptoe_stub_end:
.popsection
