/* Compiles HLSL compute shaders with Microsoft's FXC, on Windows or under Wine.
 *
 *     fxc.exe LIMIT_MS LIST
 *
 * LIST names a file of HLSL a line. `d3dcompiler_47.dll` lies beside the program. For each file it
 * writes a line: "ok", "refused" or "late", milliseconds on a core, the name, the first error;
 * separated by tabs. A compilation cannot be stopped: after a late one the program ends. */
#include <windows.h>
#include <d3dcompiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What wgpu gives in a release build. With a debug build's flags FXC finds the same errors. */
#define FLAGS D3DCOMPILE_ENABLE_STRICTNESS

typedef HRESULT(WINAPI *Compile)(LPCVOID, SIZE_T, LPCSTR, const D3D_SHADER_MACRO *,
                                 ID3DInclude *, LPCSTR, LPCSTR, UINT, UINT, ID3DBlob **,
                                 ID3DBlob **);

static Compile compile;
static char source[8 << 20];
static size_t bytes;
static HRESULT result;
static ID3DBlob *code, *messages;
static ULONGLONG took_ms;

/* What a thread took of a core: the machine may be busy with other work. */
static ULONGLONG ms_of(HANDLE thread) {
    FILETIME created, ended, kernel, user;
    GetThreadTimes(thread, &created, &ended, &kernel, &user);
    ULONGLONG high = (ULONGLONG)kernel.dwHighDateTime + user.dwHighDateTime;
    return ((high << 32) + kernel.dwLowDateTime + user.dwLowDateTime) / 10000;
}

static DWORD WINAPI compile_source(LPVOID name) {
    ULONGLONG begin = ms_of(GetCurrentThread());
    result = compile(source, bytes, name, NULL, NULL, "main", "cs_5_1", FLAGS, 0, &code,
                     &messages);
    took_ms = ms_of(GetCurrentThread()) - begin;
    return 0;
}

static int read_source(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) return 0;
    bytes = fread(source, 1, sizeof source, file);
    fclose(file);
    return bytes < sizeof source;
}

/* The first message that is an error, without its end of line. */
static const char *first_error(void) {
    if (!messages) return "no message";
    char *text = messages->lpVtbl->GetBufferPointer(messages);
    char *error = strstr(text, "error ");
    char *line = error ? error : text;
    line[strcspn(line, "\r\n\t")] = 0;
    return line;
}

int main(int count, char **args) {
    HMODULE dll = LoadLibraryA("d3dcompiler_47.dll");
    compile = dll ? (Compile)(void *)GetProcAddress(dll, "D3DCompile") : NULL;
    FILE *list = count == 3 ? fopen(args[2], "r") : NULL;
    if (!compile || !list) {
        fprintf(stderr, compile ? "fxc.exe LIMIT_MS LIST\n" : "d3dcompiler_47.dll is missing\n");
        return 2;
    }
    char name[1024];
    while (fgets(name, sizeof name, list)) {
        name[strcspn(name, "\r\n")] = 0;
        if (!read_source(name)) {
            printf("refused\t0\t%s\tthe file cannot be read\n", name);
            continue;
        }
        code = messages = NULL;
        /* As deep a stack as FXC wants for long texts. */
        HANDLE thread = CreateThread(NULL, 64 << 20, compile_source, name, 0, NULL);
        ULONGLONG limit_ms = strtoul(args[1], NULL, 10);
        DWORD waited = WAIT_TIMEOUT;
        while (waited == WAIT_TIMEOUT && ms_of(thread) < limit_ms)
            waited = WaitForSingleObject(thread, 200);
        if (waited == WAIT_TIMEOUT) {
            printf("late\t%s\t%s\t\n", args[1], name);
            fflush(stdout);
            ExitProcess(0);
        }
        CloseHandle(thread);
        printf("%s\t%llu\t%s\t%s\n", SUCCEEDED(result) ? "ok" : "refused", took_ms, name,
               SUCCEEDED(result) ? "" : first_error());
        fflush(stdout);
        if (code) code->lpVtbl->Release(code);
        if (messages) messages->lpVtbl->Release(messages);
    }
    return 0;
}
