/* Stands before the resolver of the C library, for tests: no name is found while the file that BED_DEAF names is there. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    const char *deaf = getenv("BED_DEAF");

    while (deaf && access(deaf, F_OK) == 0)
        usleep(20000);
    return ((resolver *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, service, hints, found);
}
