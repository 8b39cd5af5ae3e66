// The part of the HSA runtime by which programs ask for a GPU's architecture, as Mojo does: agents and their ISA. Numbers are from
// hsa.h of ROCR-Runtime (HSA Runtime Programmer's Reference Manual 1.2). Agent 1 is the host, the others are the devices.
#include "internal.h"

enum { HSA_SUCCESS = 0, HSA_ERROR = 0x1000, HSA_INVALID_ARGUMENT = 0x1001, HSA_INVALID_AGENT = 0x1004, HSA_INVALID_ISA = 0x100f };
enum { AGENT_NAME, AGENT_VENDOR, AGENT_NODE = 16, AGENT_DEVICE, AGENT_ISA = 19 };  // hsa_agent_info_t
enum { AGENT_BDFID = 0xa006, AGENT_DOMAIN = 0xa00f };  // hsa_amd_agent_info_t of hsa_ext_amd.h: place on the PCI bus
enum { PCI_BUS = 67, PCI_DEVICE, PCI_DOMAIN };  // hipDeviceAttribute_t
enum { ISA_NAME_LENGTH, ISA_NAME };  // hsa_isa_info_t
enum { TEXT_BYTES = 64, ARCH_AT = 1160 };  // gcnArchName in hipDeviceProp_t (simgpu/hip/properties.py)

typedef struct {
    u64 number;
} HsaHandle;  // hsa_agent_t, hsa_isa_t: 1 for the host, 2 and up for the devices

static const char *arch_of(HsaHandle agent) { return (const char *)state.device[agent.number - 2].properties + ARCH_AT; }
static bool is_gpu(HsaHandle agent) { return agent.number >= 2 && agent.number < state.devices + 2; }

extern Error hipDeviceGetAttribute(int *value, int attribute, int device);

static u32 pci(HsaHandle agent, int attribute) {
    int value = 0;
    if (is_gpu(agent)) hipDeviceGetAttribute(&value, attribute, (int)agent.number - 2);
    return (u32)value;
}

API int hsa_init(void) { return begin() ? HSA_ERROR : HSA_SUCCESS; }
API int hsa_shut_down(void) { return HSA_SUCCESS; }

API int hsa_iterate_agents(int (*each)(HsaHandle, void *), void *data) {
    if (!each) return HSA_INVALID_ARGUMENT;
    int status = hsa_init();
    for (u64 i = 1; i < state.devices + 2 && !status; i++) status = each((HsaHandle){i}, data);
    return status;
}

API int hsa_agent_get_info(HsaHandle agent, int attribute, void *value) {
    bool gpu = is_gpu(agent);
    if (!gpu && agent.number != 1) return HSA_INVALID_AGENT;
    if (!value) return HSA_INVALID_ARGUMENT;
    if (attribute == AGENT_NAME || attribute == AGENT_VENDOR) {
        const char *text = attribute == AGENT_VENDOR ? (gpu ? "AMD" : "CPU") : gpu ? arch_of(agent) : "host";
        memset(value, 0, TEXT_BYTES);
        memcpy(value, text, attribute == AGENT_NAME ? strcspn(text, ":") : strlen(text));
    } else if (attribute == AGENT_DEVICE) {
        *(int *)value = gpu;  // HSA_DEVICE_TYPE_CPU, _GPU
    } else if (attribute == AGENT_NODE) {
        *(u32 *)value = (u32)agent.number - 1;
    } else if (attribute == AGENT_BDFID) {  // bus, device and function, 0
        *(u32 *)value = pci(agent, PCI_BUS) << 8 | pci(agent, PCI_DEVICE) << 3;
    } else if (attribute == AGENT_DOMAIN) {
        *(u32 *)value = pci(agent, PCI_DOMAIN);
    } else if (attribute == AGENT_ISA && gpu) {
        *(HsaHandle *)value = agent;
    } else {
        return HSA_INVALID_ARGUMENT;
    }
    return HSA_SUCCESS;
}

API int hsa_agent_iterate_isas(HsaHandle agent, int (*each)(HsaHandle, void *), void *data) {
    if (!each) return HSA_INVALID_ARGUMENT;
    return is_gpu(agent) ? each(agent, data) : agent.number == 1 ? HSA_SUCCESS : HSA_INVALID_AGENT;
}

API int hsa_isa_get_info_alt(HsaHandle isa, int attribute, void *value) {
    static const char triple[] = "amdgcn-amd-amdhsa--";
    if (!is_gpu(isa)) return HSA_INVALID_ISA;
    if (!value || (attribute != ISA_NAME && attribute != ISA_NAME_LENGTH)) return HSA_INVALID_ARGUMENT;
    size_t bytes = strlen(triple) + strlen(arch_of(isa)) + 1;
    if (attribute == ISA_NAME_LENGTH) *(u32 *)value = (u32)bytes;
    else strcpy(strcpy(value, triple) + strlen(triple), arch_of(isa));
    return HSA_SUCCESS;
}
