/* As much of NVIDIA's driver as cuDNN needs to make plans for a device that is not there: it loads
   the kernels that cuDNN has compiled, and nothing can run them. */
enum { success = 0, no_device = 100 };

static int loaded;

int cuLibraryLoadData(void** library) {
  *library = &loaded;
  return success;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &loaded;
  return success;
}
int cuLibraryUnload(void) { return success; }

/* What else cuDNN looks for. */
#define ABSENT(name) \
  int name(void) { return no_device; }
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetCount)
ABSENT(cuDriverGetVersion)
ABSENT(cuGetErrorName)
ABSENT(cuGetErrorString)
ABSENT(cuInit)
ABSENT(cuKernelGetAttribute)
ABSENT(cuKernelSetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkDestroy)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)
