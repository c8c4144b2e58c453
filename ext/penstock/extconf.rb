# frozen_string_literal: true

# Builds penstock/penstock against the system's librdkafka (2.0.2 or newer), found by pkg-config.
#   ruby extconf.rb [--with-rdkafka-dir=PREFIX] [--enable-debug] [--enable-werror]

require_relative "shared/build"

OLDEST_LIBRDKAFKA = "2.0.2"

def find_librdkafka
  dir_config("rdkafka")
  pkg_config("rdkafka")
  return if have_header("librdkafka/rdkafka.h") && have_library("rdkafka", "rd_kafka_queue_cb_event_enable")

  abort <<~MESSAGE
    Penstock needs librdkafka #{OLDEST_LIBRDKAFKA} or newer with its headers. Install it with
      Debian, Ubuntu:  apt-get install librdkafka-dev pkg-config
      Alpine:          apk add librdkafka-dev pkgconf
      Fedora:          dnf install librdkafka-devel pkgconf
      macOS:           brew install librdkafka pkg-config
    or pass its location:  gem install penstock -- --with-rdkafka-dir=PREFIX
  MESSAGE
end

def check_librdkafka_version
  hex = OLDEST_LIBRDKAFKA.split(".").map { |part| format("%02x", part) }.join
  return if try_compile("#include <librdkafka/rdkafka.h>\n#if (RD_KAFKA_VERSION >> 8) < 0x#{hex}\n#error too old\n#endif")

  abort "Penstock needs librdkafka #{OLDEST_LIBRDKAFKA} or newer; the one found is older."
end

# Admin requests that came after librdkafka 2.0.2.
ADMIN_FUNCTIONS = %w[
  rd_kafka_AdminOptions_set_include_authorized_operations rd_kafka_AdminOptions_set_isolation_level
  rd_kafka_AdminOptions_set_match_consumer_group_types rd_kafka_DescribeTopics rd_kafka_DescribeCluster rd_kafka_ListOffsets
  rd_kafka_IncrementalAlterConfigs rd_kafka_DescribeUserScramCredentials rd_kafka_ElectLeaders
  rd_kafka_ConsumerGroupDescription_type rd_kafka_ConsumerGroupListing_type
].freeze

# What older librdkafkas cannot send or read: settings of groups (2.10.0), and ACLs of transactional ids (2.6.0).
ADMIN_CONSTANTS = %w[RD_KAFKA_CONFIG_SOURCE_GROUP_CONFIG RD_KAFKA_RESOURCE_TRANSACTIONAL_ID].freeze

def detect_features
  ADMIN_FUNCTIONS.each { |name| have_func(name, "librdkafka/rdkafka.h") }
  ADMIN_CONSTANTS.each { |name| have_const(name, "librdkafka/rdkafka.h") }
  have_func("rd_kafka_message_produce_errstr", "librdkafka/rdkafka.h")
  have_func("rd_kafka_message_leader_epoch", "librdkafka/rdkafka.h")
  have_func("rd_kafka_topic_partition_set_leader_epoch", "librdkafka/rdkafka.h")
  return if have_func("rd_kafka_mock_cluster_new", %w[librdkafka/rdkafka.h librdkafka/rdkafka_mock.h])

  abort "librdkafka's mock cluster (rdkafka_mock.h) is missing; Penstock::EmbeddedCluster needs it."
end

# The folders of the sources; message_pack/ is another extension. make finds a file by its base name alone, so base names must be
# unique.
def add_folders
  sources = Dir[File.join(__dir__, "{penstock.c,{core,ruby}/**/*.c}")].sort
  $VPATH.concat(sources.map { |path| File.dirname(path) }.uniq.map { |folder| folder.sub(__dir__, "$(srcdir)") })
  $INCFLAGS << " -I$(srcdir) -I$(srcdir)/core"
  $srcs = sources.map { |path| File.basename(path) }
  $headers = Dir[File.join(__dir__, "{core,ruby,shared}/**/*.h")]
end

check_word_size
find_librdkafka
check_librdkafka_version
detect_features
add_folders
set_flags
$LDFLAGS << " -pthread"
create_makefile("penstock/penstock")
