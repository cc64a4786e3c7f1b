/* Compiles HLSL compute shaders with Microsoft's FXC or DXC, on Windows or under Wine.
 *
 *     compile.exe COMPILER LIMIT_MS FILE...
 *
 * COMPILER is "fxc" or "dxc"; its DLL is beside the program. Each FILE has HLSL. For each file the
 * program prints a line with tabs between its fields: milliseconds of CPU time, the name, and the
 * first error or nothing. A compilation cannot be stopped, so the program ends after one that takes
 * too long. */
#include <windows.h>
#include <d3dcompiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The flags of wgpu in a release build. With those of a debug build FXC finds the same errors. */
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

/* The parts of dxcapi.h that we use; mingw does not have it. A blob of DXC is an ID3DBlob. */
typedef struct {
    const void *bytes;
    SIZE_T size;
    UINT encoding;
} DxcBuffer;

/* Each begins with the three methods of IUnknown. */
typedef struct DxcResult {
    struct {
        void *unknown[2];
        ULONG(WINAPI *Release)(struct DxcResult *);
        HRESULT(WINAPI *GetStatus)(struct DxcResult *, HRESULT *);
        HRESULT(WINAPI *GetResult)(struct DxcResult *, ID3DBlob **);
        HRESULT(WINAPI *GetErrorBuffer)(struct DxcResult *, ID3DBlob **);
    } *vtbl;
} DxcResult;

typedef struct DxcCompiler {
    struct {
        void *unknown[3];
        HRESULT(WINAPI *Compile)(struct DxcCompiler *, const DxcBuffer *, LPCWSTR *, UINT32, void *,
                                 REFIID, void **);
    } *vtbl;
} DxcCompiler;

typedef HRESULT(WINAPI *CreateInstance)(REFCLSID, REFIID, void **);

static const GUID CLSID_COMPILER = {
    0x73e22d93, 0xe6ce, 0x47f3, {0xb5, 0xbf, 0xf0, 0x66, 0x4f, 0x39, 0xc1, 0xb0}};
static const GUID IID_COMPILER3 = {
    0x228b4687, 0x5a6a, 0x4730, {0x90, 0x0c, 0x97, 0x02, 0xb2, 0x20, 0x3f, 0x54}};
static const GUID IID_RESULT = {
    0x58346cda, 0xdde7, 0x4497, {0x94, 0x61, 0x6f, 0x87, 0xaf, 0x5e, 0x06, 0x59}};

static DxcCompiler *dxc;

/* The arguments of wgpu in a release build. Native 16-bit types need model 6.2. */
static void compile_by_dxc(void) {
    int halves = strstr(source, "half") != NULL;
    LPCWSTR args[] = {L"-E", L"main", L"-T", halves ? L"cs_6_2" : L"cs_6_0", L"-HV", L"2018",
                      L"-no-warnings", L"-Ges", L"-enable-16bit-types"};
    UINT32 count = sizeof args / sizeof *args - !halves;
    DxcBuffer text = {source, bytes, 65001};
    DxcResult *made = NULL;
    result = dxc->vtbl->Compile(dxc, &text, args, count, NULL, &IID_RESULT, (void **)&made);
    if (FAILED(result)) return;
    made->vtbl->GetStatus(made, &result);
    if (FAILED(result)) made->vtbl->GetErrorBuffer(made, &messages);
    made->vtbl->Release(made);
}

/* Whether the compiler's DLL can be loaded. */
static int load(const char *name) {
    if (strcmp(name, "fxc") == 0) {
        HMODULE dll = LoadLibraryA("d3dcompiler_47.dll");
        compile = dll ? (Compile)(void *)GetProcAddress(dll, "D3DCompile") : NULL;
        return compile != NULL;
    }
    HMODULE dll = LoadLibraryA("dxcompiler.dll");
    void *create = dll ? (void *)GetProcAddress(dll, "DxcCreateInstance") : NULL;
    return create && SUCCEEDED(((CreateInstance)create)(&CLSID_COMPILER, &IID_COMPILER3,
                                                        (void **)&dxc));
}

/* The CPU time of a thread, because the machine may be busy with other work. */
static ULONGLONG ms_of(HANDLE thread) {
    FILETIME created, ended, kernel, user;
    GetThreadTimes(thread, &created, &ended, &kernel, &user);
    ULONGLONG high = (ULONGLONG)kernel.dwHighDateTime + user.dwHighDateTime;
    return ((high << 32) + kernel.dwLowDateTime + user.dwLowDateTime) / 10000;
}

static DWORD WINAPI compile_source(LPVOID name) {
    ULONGLONG begin = ms_of(GetCurrentThread());
    if (dxc)
        compile_by_dxc();
    else
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
    if (bytes == sizeof source) return 0;
    source[bytes] = 0;
    return 1;
}

/* The first error message, without its line end. */
static const char *first_error(void) {
    if (SUCCEEDED(result)) return "";
    if (!messages) return "no message";
    char *text = messages->lpVtbl->GetBufferPointer(messages);
    char *error = strstr(text, "error");
    char *line = error ? error : text;
    line[strcspn(line, "\r\n\t")] = 0;
    return line;
}

int main(int count, char **args) {
    if (count < 3 || !load(args[1])) {
        fprintf(stderr, "compile.exe COMPILER LIMIT_MS FILE..., with the compiler's DLL\n");
        return 2;
    }
    for (int at = 3; at < count; at++) {
        char *name = args[at];
        if (!read_source(name)) {
            printf("0\t%s\tthe file cannot be read\n", name);
            continue;
        }
        code = messages = NULL;
        /* FXC needs a large stack for long texts. */
        HANDLE thread = CreateThread(NULL, 64 << 20, compile_source, name, 0, NULL);
        ULONGLONG limit_ms = strtoul(args[2], NULL, 10);
        DWORD waited = WAIT_TIMEOUT;
        while (waited == WAIT_TIMEOUT && ms_of(thread) < limit_ms)
            waited = WaitForSingleObject(thread, 200);
        int is_late = waited == WAIT_TIMEOUT;
        printf("%llu\t%s\t%s\n", is_late ? limit_ms : took_ms, name,
               is_late ? "it takes too long" : first_error());
        fflush(stdout);
        if (is_late) ExitProcess(0);
        CloseHandle(thread);
        if (code) code->lpVtbl->Release(code);
        if (messages) messages->lpVtbl->Release(messages);
    }
    return 0;
}
