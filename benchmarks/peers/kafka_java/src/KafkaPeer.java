import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.*;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * Times one of Kafka's own assignors on one event and prints one JSON line. One case a JVM: profiles do not mix.
 *
 *   KafkaPeer sticky|cooperative|uniform EVENT P W TOPICS OVERLAP WARM RUNS
 *
 * EVENT is fresh, noop, add1, sub1 or add10 (+10 % consumers); all but fresh start from the assignor's own fresh result.
 * OVERLAP -1: everybody reads every topic. Else two alternating classes of consumers, each reading half of the topics
 * and OVERLAP of them in common.
 *
 * Timed: ready objects in memory -> assignment in memory. The client assignors get new input objects before each call,
 * made outside the timed part: StickyAssignor consumes its user data, so a second call on the same objects would
 * silently run as fresh. The broker's assignor is handed its long-lived state, partition -> owner included, as in life.
 */
public final class KafkaPeer {
    private record Case(String assignor, String event, int partitions, int workers, int topics, int overlap) { }

    private static Case c;
    private static final Map<String, List<PartitionInfo>> METADATA = new HashMap<>();
    private static final Map<String, Uuid> IDS = new HashMap<>();
    private static final Map<Uuid, String> NAMES = new HashMap<>();

    private static String topic(int i) {
        return String.format("t%03d", i);
    }

    private static String member(int i) {
        return String.format("w%05d", i);
    }

    private static List<String> subscription(String member) {
        boolean first = Integer.parseInt(member.substring(1)) % 2 == 0;
        int half = c.topics / 2;
        int low = c.overlap < 0 || first ? 0 : half - c.overlap / 2;
        int high = c.overlap < 0 || !first ? c.topics : half + c.overlap - c.overlap / 2;
        return IntStream.range(low, high).mapToObj(KafkaPeer::topic).toList();
    }

    private static AbstractStickyAssignor client() {
        return c.assignor.equals("cooperative") ? new CooperativeStickyAssignor() : new StickyAssignor();
    }

    /** A call of a client assignor on objects that nobody has used before. */
    private static Callable<Map<String, List<TopicPartition>>> clientCall(Map<String, List<TopicPartition>> owned, int generation) {
        boolean cooperative = c.assignor.equals("cooperative");
        Map<String, Subscription> group = new HashMap<>();
        owned.forEach((member, held) -> {
            List<TopicPartition> parts = new ArrayList<>(held.size());
            held.forEach(tp -> parts.add(new TopicPartition(tp.topic(), tp.partition())));
            int known = parts.isEmpty() ? AbstractStickyAssignor.DEFAULT_GENERATION : generation;
            AbstractStickyAssignor own = client();
            if (known >= 0)
                own.onAssignment(new ConsumerPartitionAssignor.Assignment(parts),
                    new ConsumerGroupMetadata("g", known, member, Optional.empty()));
            group.put(member, new Subscription(subscription(member), own.subscriptionUserData(Set.of()),
                cooperative ? parts : List.of(), cooperative ? known : -1, Optional.empty()));
        });
        AbstractStickyAssignor leader = client();
        return () -> leader.assignPartitions(METADATA, group);
    }

    private static Callable<Map<String, MemberAssignment>> brokerCall(Map<String, List<TopicPartition>> owned) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        owned.forEach((member, held) -> {
            Map<Uuid, Set<Integer>> parts = new HashMap<>();
            for (TopicPartition tp : held) {
                Uuid id = IDS.get(tp.topic());
                parts.computeIfAbsent(id, k -> new HashSet<>()).add(tp.partition());
                owners.computeIfAbsent(id, k -> new HashMap<>()).put(tp.partition(), member);
            }
            Set<Uuid> topics = subscription(member).stream().map(IDS::get).collect(Collectors.toSet());
            members.put(member, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(), topics,
                new org.apache.kafka.coordinator.group.modern.Assignment(parts)));
        });
        GroupSpec spec = new GroupSpecImpl(members,
            c.overlap < 0 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, owners);
        SubscribedTopicDescriber sizes = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return NAMES.containsKey(topic) ? c.partitions / c.topics : -1;
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        UniformAssignor assignor = new UniformAssignor();
        return () -> assignor.assign(spec, sizes).members();
    }

    private static Map<String, List<TopicPartition>> plain(Map<String, MemberAssignment> result) {
        Map<String, List<TopicPartition>> out = new HashMap<>();
        result.forEach((member, assignment) -> {
            List<TopicPartition> parts = out.computeIfAbsent(member, k -> new ArrayList<>());
            assignment.partitions().forEach((id, numbers) ->
                numbers.forEach(n -> parts.add(new TopicPartition(NAMES.get(id), n))));
        });
        return out;
    }

    /** The state before the event: a settled group, then its workers changed. */
    private static Map<String, List<TopicPartition>> before() throws Exception {
        Map<String, List<TopicPartition>> owned = new TreeMap<>();
        for (int i = 0; i < c.workers; i++) owned.put(member(i), List.of());
        if (!c.event.equals("fresh"))
            owned = new TreeMap<>(c.assignor.equals("uniform") ? plain(brokerCall(owned).call()) : clientCall(owned, 1).call());
        int more = c.event.equals("add1") ? 1 : c.event.equals("add10") ? Math.max(1, c.workers / 10) : 0;
        for (int i = 0; i < more; i++) owned.put(member(c.workers + i), List.of());
        if (c.event.equals("sub1")) owned.remove(member(c.workers / 2));
        return owned;
    }

    private static long lastNanos;

    private static <T> T timed(Callable<T> call) throws Exception {
        long start = System.nanoTime();
        T result = call.call();
        lastNanos = System.nanoTime() - start;
        return result;
    }

    private static String list(List<Long> nanos) {
        return nanos.stream().map(n -> String.format(Locale.ROOT, "%.4f", n / 1e6)).collect(Collectors.joining(",", "[", "]"));
    }

    private static long moves(Map<String, List<TopicPartition>> was, Map<String, List<TopicPartition>> is) {
        Map<TopicPartition, String> owner = new HashMap<>();
        was.forEach((member, parts) -> parts.forEach(tp -> owner.put(tp, member)));
        return is.entrySet().stream().flatMap(e -> e.getValue().stream()
            .filter(tp -> owner.containsKey(tp) && !owner.get(tp).equals(e.getKey()))).count();
    }

    public static void main(String[] arg) throws Exception {
        c = new Case(arg[0], arg[1], Integer.parseInt(arg[2]), Integer.parseInt(arg[3]), Integer.parseInt(arg[4]),
            Integer.parseInt(arg[5]));
        int warm = Integer.parseInt(arg[6]), runs = Integer.parseInt(arg[7]);
        for (int i = 0; i < c.topics; i++) {
            String topic = topic(i);
            IDS.put(topic, new Uuid(0x5eed5eedL, i + 1));
            NAMES.put(IDS.get(topic), topic);
            METADATA.put(topic, IntStream.range(0, c.partitions / c.topics).mapToObj(p ->
                new PartitionInfo(topic, p, Node.noNode(), new Node[0], new Node[0])).toList());
        }
        boolean broker = c.assignor.equals("uniform");
        Map<String, List<TopicPartition>> owned = before(), after = null;
        List<Long> first = new ArrayList<>(), second = new ArrayList<>();
        Callable<Map<String, MemberAssignment>> held = broker ? brokerCall(owned) : null;
        Map<String, MemberAssignment> result = null;
        for (int i = 0; i < warm + runs; i++) {
            if (broker) result = timed(held);
            else after = timed(clientCall(owned, 2));
            if (i >= warm) first.add(lastNanos);
            if (c.assignor.equals("cooperative") && after.values().stream().mapToInt(List::size).sum() < c.partitions) {
                after = timed(clientCall(after, 3));   // what moves was withheld: a second round hands it out
                if (i >= warm) second.add(lastNanos);
            }
        }
        if (broker) after = plain(result);
        IntSummaryStatistics counts = after.values().stream().mapToInt(List::size).summaryStatistics();
        if (counts.getSum() != c.partitions) throw new IllegalStateException("not a full assignment");
        String peak = Files.readAllLines(Path.of("/proc/self/status")).stream().filter(l -> l.startsWith("VmHWM"))
            .map(l -> l.replaceAll("\\D", "")).findFirst().orElse("0");
        System.out.printf(Locale.ROOT, "{\"ms\":%s,\"round2_ms\":%s,\"moves\":%d,\"lowest\":%d,\"highest\":%d,\"peak_mib\":%d}%n",
            list(first), list(second), moves(owned, after), counts.getMin(), counts.getMax(), Long.parseLong(peak) / 1024);
    }
}
