// The C face from C++.
#include <cstring>

#include "qf.h"

int main() {
  const float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  qf_tensor w;
  qf_tensor_matrix(&w, const_cast<float*>(weights), QF_F32, 2, 4);
  qf_error error = QF_ERROR_INIT;
  qf_matrix* matrix = nullptr;
  if (qf_quantize(&w, nullptr, nullptr, &matrix, &error) != QF_OK) return 1;
  qf_matrix_destroy(matrix);
  return std::strcmp(qf_status_name(QF_ERR_IO), "I/O error");
}
