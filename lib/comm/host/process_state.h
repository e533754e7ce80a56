// What the system says of other processes of this host.
#pragma once

namespace trainctl {

/// No process has this number.
bool is_gone(long process);
/// 'T' stopped, 'Z' ended, others alive; 'Z' too when there is no such process, '?' when it cannot
/// be seen.
char state_of(long process);
/// "stopped", "ended" or "".
const char* trouble_of(long process);
/// The namespace in which process numbers of this process hold; 0: unknown.
unsigned long process_namespace();
/// The cores that this process may use.
int cores_of_this_process();

}  // namespace trainctl
