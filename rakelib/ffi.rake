# frozen_string_literal: true

namespace :test do
  desc "Shows ffi's missing write barrier, and that we miss none: rake test:ffi [PROCESSES=20] [SECONDS=3]"
  task ffi: :compile do
    ruby "test/proofs/support/ffi_defect.rb", ENV.fetch("PROCESSES", "20"), ENV.fetch("SECONDS", "3")
  end
end
