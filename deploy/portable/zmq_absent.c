// Debian's static libzmq refers to transports (PGM, NORM) and a mechanism (GSSAPI) whose libraries have no static form
// or no use here: Quire publishes over TCP, IPC and in-process sockets only. Here are the names, and a call of one ends
// the process.
#include <stdlib.h>

#define ABSENT(name) \
  void name(void);   \
  void name(void) {  \
    abort();         \
  }

ABSENT(NormCreateInstance)
ABSENT(NormCreateSession)
ABSENT(NormDestroyInstance)
ABSENT(NormDestroySession)
ABSENT(NormGetDescriptor)
ABSENT(NormGetNextEvent)
ABSENT(NormGetRandomSessionId)
ABSENT(NormIsUnicastAddress)
ABSENT(NormNodeDelete)
ABSENT(NormObjectGetType)
ABSENT(NormObjectGetUserData)
ABSENT(NormObjectSetUserData)
ABSENT(NormSetCongestionControl)
ABSENT(NormSetDefaultSyncPolicy)
ABSENT(NormSetDefaultUnicastNack)
ABSENT(NormSetLoopback)
ABSENT(NormSetMulticastInterface)
ABSENT(NormSetRxPortReuse)
ABSENT(NormSetTTL)
ABSENT(NormStartReceiver)
ABSENT(NormStartSender)
ABSENT(NormStopInstance)
ABSENT(NormStopReceiver)
ABSENT(NormStopSender)
ABSENT(NormStreamFlush)
ABSENT(NormStreamOpen)
ABSENT(NormStreamRead)
ABSENT(NormStreamSeekMsgStart)
ABSENT(NormStreamWrite)
ABSENT(gss_accept_sec_context)
ABSENT(gss_acquire_cred)
ABSENT(gss_delete_sec_context)
ABSENT(gss_display_name)
ABSENT(gss_import_name)
ABSENT(gss_init_sec_context)
ABSENT(gss_release_buffer)
ABSENT(gss_release_cred)
ABSENT(gss_release_name)
ABSENT(gss_unwrap)
ABSENT(gss_wrap)
ABSENT(pgm_bind3)
ABSENT(pgm_close)
ABSENT(pgm_connect)
ABSENT(pgm_error_free)
ABSENT(pgm_free)
ABSENT(pgm_freeaddrinfo)
ABSENT(pgm_getaddrinfo)
ABSENT(pgm_getsockopt)
ABSENT(pgm_gsi_create_from_data)
ABSENT(pgm_init)
ABSENT(pgm_recvmsgv)
ABSENT(pgm_send)
ABSENT(pgm_setsockopt)
ABSENT(pgm_shutdown)
ABSENT(pgm_socket)

// Handles of NORM that say "none".
const void* NORM_INSTANCE_INVALID;
const void* NORM_NODE_ANY;
const void* NORM_OBJECT_INVALID;
const void* NORM_SESSION_INVALID;

void* GSS_C_NT_HOSTBASED_SERVICE;
void* GSS_C_NT_USER_NAME;
